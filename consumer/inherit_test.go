package consumer

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// letGo waits until an instance has seen how shards ended that it owned.
func (i *instance) letGo(t *testing.T, shards ...int) {
	t.Helper()
	eventually(t, "closed shards are finished", func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		return !slices.ContainsFunc(shards, func(shard int) bool { return i.owns[shard] != nil })
	})
}

// TestStatesGoUnderAnInstance: when all that was saved goes while it runs, an instance folds the closed generation again.
func TestStatesGoUnderAnInstance(t *testing.T) {
	f := newFleet(t, 2)
	f.batches(9, 50)
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 20)
	i := f.instance("a", newChain)
	eventually(t, "the new shards are owned", func() bool { return slices.Equal(i.shards(), f.topo.Numbers()) })
	i.letGo(t, 0, 1)
	states, err := f.admin.Stream(t.Context(), schema.StateStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := states.Purge(t.Context(), jetstream.WithPurgeSubject(schema.StateSubjectsOf("chain"))); err != nil {
		t.Fatal(err)
	}
	f.batches(9, 20)
	eventually(t, "the new shards have states again", func() bool {
		return !slices.ContainsFunc(f.topo.Numbers(), func(shard int) bool { m := f.manifest(shard); return !m.saved() })
	})
	i.stop()
	f.finish()
	f.expectSums(f.committed(), newChain)
}

// TestALongWaitIsSaid: once, and again when it began anew.
func TestALongWaitIsSaid(t *testing.T) {
	var log page
	c := New(Options{}, nil, newChain, slog.New(slog.NewJSONHandler(&log, nil)))
	ended := make(chan struct{})
	close(ended)
	for n, round := range []struct {
		waitsFor int
		longer   time.Duration
		said     int
	}{{0, 0, 0}, {0, 2 * longWait, 1}, {0, 2 * longWait, 1}, {noShard, 0, 1}, {0, 0, 1}, {0, 2 * longWait, 2}} {
		if since, waits := c.waits[5]; waits {
			c.waits[5] = since.Add(-round.longer)
		}
		c.owns[5] = &owned{shard: 5, waitsFor: round.waitsFor, ended: ended}
		if c.owned(5) != nil {
			t.Fatal("it has not ended")
		}
		if said := strings.Count(log.text.String(), "shard waits for one"); said != round.said {
			t.Errorf("round %d: said %d times, want %d: %s", n, said, round.said, log.text.String())
		}
	}
}

// TestRemoveWhatAFoldHasNotSeen: a generation stays for a fold that is down since one before it.
func TestRemoveWhatAFoldHasNotSeen(t *testing.T) {
	f := newFleet(t, 2)
	f.batches(9, 20)
	f.finish()
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 20)
	f.topo = reshard(t, f.admin, 2)
	f.batches(9, 20)
	if _, err := RemoveGeneration(t.Context(), f.admin, 2); err == nil || !strings.Contains(err.Error(), "chain has not taken over yet what it saved of generation 1") {
		t.Errorf("a generation that a fold has not seen is removed: %v", err)
	}
	f.finish()
	f.expectSums(f.committed(), newChain)
	if _, err := RemoveGeneration(t.Context(), f.admin, 2); err != nil {
		t.Error(err)
	}
}

// TestClosedShardWrittenAnew: a stream that was written anew while nobody folded is folded, to its end, before a shard of the next
// generation inherits from it.
func TestClosedShardWrittenAnew(t *testing.T) {
	for _, batches := range []int{12, 30, 40} {
		f := newFleet(t, 1)
		f.batches(3, 30)
		f.finish()
		if err := f.admin.DeleteStream(t.Context(), schema.StreamName(0)); err != nil {
			t.Fatal(err)
		}
		reshard(t, f.admin, 1)
		f.batches(3, batches)
		f.topo = reshard(t, f.admin, 2)
		f.batches(3, 6)
		f.finish()
		f.expectSums(f.committed(), newChain)
		if strings.Contains(f.log.text.String(), "batches are missing") {
			t.Errorf("%d batches: a gap, and nothing was lost", batches)
		}
	}
}

// TestClosedShardWithAnotherEnd: so is one whose end was lost, and whose sequences were used again.
func TestClosedShardWithAnotherEnd(t *testing.T) {
	f := newFleet(t, 1)
	f.batches(3, 30)
	f.finish()
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	m, err := store.claim(t.Context(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.load(t.Context(), &m, 0)
	if err != nil {
		t.Fatal(err)
	}
	other := m
	other.Stored = other.Stored.Add(time.Second)
	if err := store.commit(t.Context(), &m, other, state); err != nil {
		t.Fatal(err)
	}
	f.topo = reshard(t, f.admin, 2)
	r := newReader(ReaderOptions{}, f.admin, newChain(), slog.New(slog.DiscardHandler))
	if drained, err := r.drained(t.Context(), 0, &m); drained || err != nil {
		t.Errorf("a checkpoint of another end: drained %t, %v", drained, err)
	}
	f.finish()
	if m = f.manifest(0); !m.Stored.Equal(other.Stored.Add(-time.Second)) {
		t.Errorf("the checkpoint still speaks of the other end: %s", m.Stored)
	}
	f.expectSums(f.committed(), newChain)
}
