package shard

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// TestLookReadsAllLeases: of as many shards and instances as there can be; it skips those of other folds and
// released ones.
func TestLookReadsAllLeases(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	c := info(t, js, schema.BucketStream(schema.LeaseBucket)).Config
	c.MaxAge = time.Minute // none is forgotten while the others are written
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	l, err := openLeases(t.Context(), js, "chain", "me")
	if err != nil {
		t.Fatal(err)
	}
	var acks []jetstream.PubAckFuture
	put := func(key string) {
		ack, err := js.PublishAsync(schema.KeySubject(schema.LeaseBucket, key), l.value())
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, ack)
	}
	for shard := range schema.MaxShards {
		put(l.shardKey(shard))
		put(fmt.Sprintf("another.%d", shard))
	}
	for _, members := range []int{0, 1, 1100} {
		for i := range members {
			put(fmt.Sprintf("m.chain.i%d", i))
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				t.Fatal(err)
			}
		}
		acks = nil
		there, owners, err := l.look(t.Context())
		if err != nil || len(there) != members || len(owners) != schema.MaxShards ||
			owners[schema.MaxShards-1] != "me" {
			t.Errorf("%d members, %d owners, %v; want %d and %d", len(there), len(owners), err, members,
				schema.MaxShards)
		}
	}
	if err := l.kv.Delete(t.Context(), l.shardKey(7)); err != nil {
		t.Fatal(err)
	}
	if _, owners, err := l.look(t.Context()); err != nil || len(owners) != schema.MaxShards-1 || owners[7] != "" {
		t.Errorf("%d owners, %q of shard 7, %v", len(owners), owners[7], err)
	}
}

// TestMissingBucketErrorNamesTheRemedy: the error names the command that creates it.
func TestMissingBucketErrorNamesTheRemedy(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	if err := js.DeleteKeyValue(t.Context(), schema.LeaseBucket); err != nil {
		t.Fatal(err)
	}
	if _, err := openLeases(t.Context(), js, "chain", "a"); err == nil ||
		!strings.Contains(err.Error(), "gputap stream init") {
		t.Errorf("it says %v", err)
	}
}

// TestAnyInstanceNameCanJoin: two names stay two members, also if they differ only in characters that keys do not
// allow.
func TestAnyInstanceNameCanJoin(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	made := map[string]bool{}
	for _, name := range []string{"gpu-7", "gpu.7", "a/b=c", "gpü-7", "gpö-7", "gpu:7", "it's", "GPU+1", "\xff"} {
		c := New(Options{Fold: "chain", Instance: name}, js, slog.New(slog.DiscardHandler))
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

// TestLeaseIsFreeAfterReleaseOrExpiry: at once after a release.
func TestLeaseIsFreeAfterReleaseOrExpiry(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Lease: time.Second}); err != nil {
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
	c := info(t, js, schema.BucketStream(schema.LeaseBucket)).Config
	c.MaxAge = time.Minute // a slow machine may take longer than a second to read it
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if l, err = openLeases(t.Context(), js, "leak", "a"); err != nil {
		t.Fatal(err)
	}
	_, owners, err := l.look(t.Context())
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(owners)), []int{0}) {
		t.Errorf("owners %v, %v", owners, err)
	}
}

// TestReleaseKeepsLeaseOfAnotherInstance: an instance whose lease has expired does not release that of its successor.
func TestReleaseKeepsLeaseOfAnotherInstance(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	open := func(instance string) *leases {
		l, err := openLeases(t.Context(), js, "chain", instance)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a, b := open("a"), open("b")
	old, err := a.acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.kv.Delete(t.Context(), a.shardKey(0)); err != nil { // as if it had expired
		t.Fatal(err)
	}
	revision, err := b.acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	a.release(t.Context(), 0, old)
	if !b.holds(t.Context(), 0, &revision) {
		t.Error("the lease of b is gone")
	}
}
