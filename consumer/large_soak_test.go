//go:build soak

package consumer

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

const (
	largeHosts = 8
	largeBatch = 4096
	largeEach  = 64 * largeBatch // allocations of a host: 2,097,152 in all
)

// TestLargeState: an instance saves two million live allocations of a shard in one checkpoint, and another one
// restores them.
func TestLargeState(t *testing.T) {
	t.Parallel()
	js := bustest.NewServer(t, "").Connect()
	if err := bus.EnsureStreams(t.Context(), js,
		bus.StreamOptions{MaxBytes: 1 << 30, Lease: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	last := publishLarge(t, js)

	var saved shard.SavedState
	runUntil(t, js, func(*leak.Tracker) bool {
		var err error
		saved, err = shard.Saved(t.Context(), js, "leak", 0)
		return err == nil && saved.Sequence == last
	})
	if n := len(saved.State); n < largeHosts*largeEach*4 {
		t.Errorf("the state is %d bytes: too few for %d allocations", n, largeHosts*largeEach)
	}
	runUntil(t, js, func(tracker *leak.Tracker) bool {
		totals := tracker.Report().Totals
		if totals.LiveAllocations == 0 {
			return false // not taken up yet
		}
		if totals.LiveAllocations != largeHosts*largeEach || totals.LiveBytes != largeHosts*largeEach*512 {
			t.Errorf("taken up are %d allocations of %d bytes", totals.LiveAllocations, totals.LiveBytes)
		}
		return true
	})
}

// TestEachBatchCountsOnceForLong disturbs more instances than TestEachBatchCountsOnce.
func TestEachBatchCountsOnceForLong(t *testing.T) {
	t.Parallel()
	newFleet(t, 4).countOnce(2000)
}

// publishLarge gives the last sequence of the shard's stream.
func publishLarge(t *testing.T, js jetstream.JetStream) (last uint64) {
	t.Helper()
	b := schema.NewBuilder(schema.KindMemory)
	for host := range largeHosts {
		name := string(rune('a' + host))
		for seq := range largeEach / largeBatch {
			thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 7, Start: 1, Comm: "python3"}),
				TID: 7})
			call := b.Call(schema.CallRef{Symbol: "cuMemAlloc_v2", Op: schema.OpAlloc, Class: schema.ClassDevice})
			for i := range largeBatch {
				n := uint64(seq*largeBatch + i + 1)
				b.AddMemory(&schema.Memory{Time: schema.KTime(n * 1000), Duration: 100, Thread: thread, Call: call,
					Ptr: n << 9, Bytes: 512})
			}
			data := b.Encode(&schema.Header{Cluster: "c", Host: name, BootID: "boot", Run: 1, Seq: uint64(seq + 1)})
			ack, err := js.Publish(t.Context(), schema.Subject(0, "c", name, schema.KindMemory), data)
			if err != nil {
				t.Fatal(err)
			}
			last = ack.Sequence
			b.Reset()
		}
	}
	return last
}

// runUntil runs one instance until its fold is as wanted, and stops it gracefully.
func runUntil(t *testing.T, js jetstream.JetStream, wanted func(*leak.Tracker) bool) {
	t.Helper()
	fold := func() Stateful { return leak.New(leak.Config{}) }
	c := New(Options{Checkpoint: 200 * time.Millisecond}, js, fold, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	ok := false
	for deadline := time.Now().Add(2 * time.Minute); !ok &&
		time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		c.Each(func(_ int, fold Stateful) { ok = wanted(fold.(*leak.Tracker)) })
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !ok {
		t.Fatal("never as wanted")
	}
}
