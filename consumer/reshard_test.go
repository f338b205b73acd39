package consumer

import (
	"fmt"
	"log/slog"
	"maps"
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
