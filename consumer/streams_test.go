package consumer

import (
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// TestOneLeaseEndsNoOther: a message of one fold's removes no other's lease, in a bucket that is new and in one that let it.
func TestOneLeaseEndsNoOther(t *testing.T) {
	for name, earlier := range map[string]bool{"a new bucket": false, "one of before": true} {
		t.Run(name, func(t *testing.T) {
			js := newBus(t).connect()
			if earlier {
				c := configs(StreamOptions{Lease: defaultLease, MaxBytes: defaultBytes})[1]
				c.AllowRollup, c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, true, defaultLease
				if _, err := js.CreateStream(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			running, err := js.KeyValue(t.Context(), schema.LeaseBucket)
			if earlier && err != nil {
				t.Fatal(err)
			}
			if err := EnsureStreams(t.Context(), js, StreamOptions{}); err != nil {
				t.Fatal(err)
			}
			nothingLeftToDo(t, js)
			if !earlier {
				if running, err = js.KeyValue(t.Context(), schema.LeaseBucket); err != nil {
					t.Fatal(err)
				}
			}
			revision, err := running.Create(t.Context(), "launch.0", []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{jetstream.MsgRollupAll, jetstream.MsgRollupSubject} {
				m := nats.NewMsg(schema.KeySubject(schema.LeaseBucket, "m.leak.a"))
				m.Header.Set(jetstream.MsgRollup, what)
				if _, err := js.PublishMsg(t.Context(), m); err == nil {
					t.Errorf("a roll-up %q is taken", what)
				}
			}
			if next, err := running.Update(t.Context(), "launch.0", []byte("{}"), revision); err != nil || next != revision+1 {
				t.Errorf("the lease is renewed as %d, %v", next, err)
			}
		})
	}
}

// TestChangesOfAFullServer: streams that are larger than what is free are changed, and made smaller; one that has no room for all
// keeps everything as it is.
func TestChangesOfAFullServer(t *testing.T) {
	const most = 64 << 20
	js := serve(t, server.Options{JetStream: true, JetStreamMaxStore: most})
	init := func(bytes int64, age time.Duration) error {
		return EnsureStreams(t.Context(), js, StreamOptions{Shards: 2, MaxBytes: bytes, MaxAge: age})
	}
	reserved := func() (bytes int64) {
		own, err := OwnStreams(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range own {
			bytes += s.Config.MaxBytes
		}
		return bytes
	}
	if err := init(36<<20, time.Hour); err != nil {
		t.Fatal(err)
	}
	before := reserved()
	if shard := info(t, js, schema.StreamName(0)).Config.MaxBytes; shard <= most-before {
		t.Fatalf("a shard of %d bytes fits into the %d that are free", shard, most-before)
	}
	if err := init(0, 2*time.Hour); err != nil {
		t.Error(err)
	}
	if err := init(36<<20+(most-before), 2*time.Hour); err == nil || reserved() != before {
		t.Errorf("more than there is: %v, and %d bytes are reserved instead of %d", err, reserved(), before)
	}
	if err := init(37<<20, 2*time.Hour); err != nil {
		t.Error(err)
	}
	if err := init(32<<20, 2*time.Hour); err != nil {
		t.Error(err)
	}
	if c := info(t, js, schema.StreamName(1)).Config; c.MaxBytes != 16<<20 || c.MaxAge != 2*time.Hour {
		t.Errorf("shard 1 keeps %d bytes for %s", c.MaxBytes, c.MaxAge)
	}
}

// TestAnInstanceOfAnyName: what a host is called keeps no instance from taking part, and two names are two instances.
func TestAnInstanceOfAnyName(t *testing.T) {
	js := connectReady(t)
	made := map[string]bool{}
	for _, name := range []string{"gpu-7", "gpu.7", "a/b=c", "gpü-7", "gpö-7", "gpu:7", "it's", "GPU+1", "\xff"} {
		c := New(Options{Instance: name}, js, newChain, slog.New(slog.DiscardHandler))
		l, err := openLeases(t.Context(), js, "chain", c.opts.Instance)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.join(t.Context()); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		made[c.opts.Instance] = true
		if members, _, err := l.look(t.Context()); err != nil || len(members) != len(made) {
			t.Errorf("%q: %d members, want %d, %v", name, len(members), len(made), err)
		}
	}
	if len(made) != 9 || !made["gpu-7"] || !made["gpu_7"] || !made["a/b=c"] {
		t.Errorf("they are called %v", slices.Sorted(maps.Keys(made)))
	}
}

// TestALeaseThatEndedIsFree: at once when it was given back, and when its time is over.
func TestALeaseThatEndedIsFree(t *testing.T) {
	js := newBus(t).connect()
	if err := EnsureStreams(t.Context(), js, StreamOptions{Lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	l, err := openLeases(t.Context(), js, "leak", "a")
	if err != nil {
		t.Fatal(err)
	}
	revision, err := l.acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	l.release(t.Context(), 0, revision)
	if _, err := l.acquire(t.Context(), 0); err != nil {
		t.Errorf("given back: %v", err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err = l.acquire(t.Context(), 0); err == nil || time.Since(began) > 20*time.Second {
			break
		}
	}
	if err != nil {
		t.Errorf("not renewed: %v", err)
	}
	_, owners, err := l.look(t.Context())
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(owners)), []int{0}) {
		t.Errorf("owners %v, %v", owners, err)
	}
}
