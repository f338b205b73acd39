package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// TestLeasesAreIndependent: a message of one fold removes no lease of another, in a new bucket and in one that
// allowed roll-ups.
func TestLeasesAreIndependent(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]bool{"a new bucket": false, "one of before": true} {
		t.Run(name, func(t *testing.T) {
			js := bustest.Connect(t)
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
			expectNothingToDo(t, js)
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
			if next, err := running.Update(t.Context(), "launch.0", []byte("{}"), revision); err != nil ||
				next != revision+1 {
				t.Errorf("the lease is renewed as %d, %v", next, err)
			}
		})
	}
}

// TestFullServerCanBeChanged: streams larger than the free room can be changed and made smaller; growth beyond the
// room is refused.
func TestFullServerCanBeChanged(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	js := bustest.Dial(t, bustest.Run(t, &server.Options{JetStream: true, JetStreamMaxStore: most}).ClientURL())
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
	if err := init(36<<20+(most-before), 2*time.Hour); err == nil || reserved() > most {
		t.Errorf("more than there is: %v, and %d bytes are reserved of %d", err, reserved(), most)
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
