package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestReshardUnderConsumers: the number of shards changes while instances fold. The states of the new shards are those
// of all batches, those of the closed generation too.
func TestReshardUnderConsumers(t *testing.T) {
	f := newFleet(t, 2)
	running := []*instance{f.instance("a", newChain), f.instance("b", newChain)}
	batches := func(n int) {
		for i := range n {
			f.send(fmt.Sprint("h", i%9))
		}
	}
	batches(200)
	f.topo = reshard(t, f.admin, 3)
	batches(200)
	sums := func() map[string]uint64 {
		all := map[string]uint64{}
		for _, state := range f.committed() {
			if len(state) == 0 {
				continue
			}
			fold := newChain().(*chain)
			if err := NewReader(ReaderOptions{}, f.admin, fold, slog.New(slog.DiscardHandler)).restore(state, fold, nil); err != nil {
				t.Fatal(err)
			}
			for id, sum := range fold.hosts {
				all[id.host] = sum
			}
		}
		return all
	}
	for deadline := time.Now().Add(time.Minute); !maps.Equal(sums(), f.sums); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the states hold %v, want %v", sums(), f.sums)
		}
	}
	for _, i := range running {
		i.stop()
	}
}

// TestABusMadeAnew: whoever has folded a closed generation to its end folds what has its numbers after all was removed.
func TestABusMadeAnew(t *testing.T) {
	f := newFleet(t, 2)
	i := f.instance("a", newChain)
	f.send("h")
	reshard(t, f.admin, 3)
	eventually(t, "the closed shards are finished, the new ones owned", func() bool { return slices.Equal(i.shards(), []int{2, 3, 4}) })
	time.Sleep(2 * time.Second) // the instance looks every second at what has ended
	if _, err := RemoveStreams(t.Context(), f.admin); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the instance says that it takes no part", func() bool { return errors.Is(i.Apart(), ErrNoTopology) })
	if err := EnsureStreams(t.Context(), f.admin, StreamOptions{Shards: 2, MaxBytes: 128 << 20, Lease: f.lease}); err != nil {
		t.Fatal(err)
	}
	f.seqs, f.sums = map[string]uint64{}, map[string]uint64{}
	for n := range 20 {
		f.send(fmt.Sprint("h", n))
	}
	eventually(t, "the new shards are owned", func() bool { return slices.Equal(i.shards(), []int{0, 1}) })
	if err := i.Apart(); err != nil {
		t.Error(err)
	}
	i.stop()
	f.finish()
	f.expect(f.committed())
}
