package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

// TestReshardWhileFolding: the states of the new shards cover all batches, also those of the closed generation.
func TestReshardWhileFolding(t *testing.T) {
	t.Parallel()
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
			if err := NewReader(ReaderOptions{}, f.admin, fold, slog.New(slog.DiscardHandler)).restore(state, fold,
				nil); err != nil {
				t.Fatal(err)
			}
			for id, sum := range fold.hosts {
				all[id.Host] = sum
			}
		}
		return all
	}
	eventually(t, "the states hold what was sent", func() bool { return maps.Equal(sums(), f.sums) })
	for _, i := range running {
		i.stop()
	}
}

// TestReshardTwiceWhileDown: the number of shards changes twice while no instance runs. The last states cover all
// generations, also for a new fold.
func TestReshardTwiceWhileDown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		folded  bool
		hosts   int
		between int
	}{{"folded before", true, 9, 50}, {"folded never", false, 9, 50}, {"nothing comes between", true, 9,
		0}, {"most shards are blank", true, 1, 50}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2)
			f.batches(tt.hosts, 50)
			if tt.folded {
				f.finish()
			}
			f.topo = reshard(t, f.admin, 3)
			f.batches(tt.hosts, tt.between)
			f.topo = reshard(t, f.admin, 2)
			f.batches(tt.hosts, 50)
			f.finish()
			f.expectSums(f.committed(), newChain)
			if gaps := strings.Count(f.log.text.String(), "missing batches"); gaps > 0 {
				t.Errorf("%d gaps, and nothing was lost", gaps)
			}
		})
	}
}

// TestTakenOverShardIsNotClaimed: no instance claims or shows it again.
func TestTakenOverShardIsNotClaimed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.batches(9, 50)
	f.finish()
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 50)
	f.finish()
	before := [2]manifest{f.manifest(0), f.manifest(1)}
	f.finish()
	for shard, m := range before {
		if now := f.manifest(shard); now.Epoch != m.Epoch {
			t.Errorf("closed shard %d was claimed again: epoch %d, was %d", shard, now.Epoch, m.Epoch)
		}
	}
	f.expectSums(f.committed(), newChain)
}

// TestRebuiltStateInherits: a damaged state is rebuilt from its stream and from the states of the closed
// generation.
func TestRebuiltStateInherits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.rebuild = f.lease / 2
	f.batches(9, 50)
	f.finish()
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 50)
	f.finish()
	for _, shard := range f.topo.Numbers() {
		f.damage(shard)
	}
	f.finish()
	f.expectSums(f.committed(), newChain)
	if n := strings.Count(f.log.text.String(), "checkpoint unusable; rebuilding from the stream"); n != 3 {
		t.Errorf("%d states were rebuilt", n)
	}
}

// slowRestore counts how many states are restored at once.
type slowRestore struct {
	*chain
	now, most *atomic.Int32
}

func (s slowRestore) Restore(section Section) error {
	defer s.now.Add(-1)
	if n := s.now.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	time.Sleep(2 * time.Millisecond)
	return s.chain.Restore(section)
}

// TestInheritanceIsSequential: an instance restores the states of a closed generation for one shard at a time.
func TestInheritanceIsSequential(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.batches(9, 50)
	f.finish()
	f.topo = reshard(t, f.admin, 8)
	var now, most atomic.Int32
	i := f.instance("a", func() Stateful { return slowRestore{newChain().(*chain), &now, &most} })
	eventually(t, "all shards have saved what they inherited", func() bool {
		return f.allSaved()
	})
	i.stop()
	if n := most.Load(); n > 2 { // the closed shard's own owner takes its state up beside
		t.Errorf("%d states at once", n)
	}
	f.expectSums(f.committed(), newChain)
}

// batches sends n, of some hosts in turn.
func (f *fleet) batches(hosts, n int) {
	f.t.Helper()
	for i := range n {
		f.send(fmt.Sprint("h", i%hosts))
	}
}

// TestFinishedShardOfRemovedBus: a shard that ended while the bus was removed is not finished on the next bus.
func TestFinishedShardOfRemovedBus(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	i := f.instance("a", newChain)
	f.send("h")
	eventually(t, "the shard is owned", func() bool { return slices.Equal(i.shards(), []int{0}) })
	plan, err := bus.PlanStreams(t.Context(), f.admin, bus.StreamOptions{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	// An init that is interrupted between the topology and the sealing.
	plan.Steps = plan.Steps[:slices.IndexFunc(plan.Steps, func(s bus.Step) bool { return s.Action == "close" })]
	if err := plan.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard is known to be closed", func() bool {
		return f.log.contains(`"topology changed","consumer":"chain","instance":"a","generation":2`)
	})
	if _, err := bus.RemoveStreams(t.Context(), f.admin); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard has ended", func() bool { return len(i.owned()) == 0 })
	f.setUp(1)
	f.topo, f.seqs, f.sums = schema.Topology{Generation: 1, Shards: 1}, map[string]uint64{}, map[string]uint64{}
	f.batches(9, 20)
	eventually(t, "the new shard is owned", func() bool { return slices.Equal(i.shards(), []int{0}) })
	i.stop()
	f.finish()
	f.expect(f.committed())
}

// TestRecreatedBusIsFolded: an instance that has finished a closed shard folds the shard with the same number on a
// recreated bus.
func TestRecreatedBusIsFolded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	i := f.instance("a", newChain)
	f.send("h")
	reshard(t, f.admin, 3)
	eventually(t, "the closed shards are finished, the new ones owned",
		func() bool { return slices.Equal(i.shards(), []int{2, 3, 4}) })
	i.letGo(t, 0, 1)
	if _, err := bus.RemoveStreams(t.Context(), f.admin); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the instance says that it takes no part",
		func() bool { return errors.Is(i.NotReadyReason(), bus.ErrNoTopology) })
	f.setUp(2)
	f.seqs, f.sums = map[string]uint64{}, map[string]uint64{}
	for n := range 20 {
		f.send(fmt.Sprint("h", n))
	}
	eventually(t, "the new shards are owned", func() bool { return slices.Equal(i.shards(), []int{0, 1}) })
	if err := i.NotReadyReason(); err != nil {
		t.Error(err)
	}
	i.stop()
	f.finish()
	f.expect(f.committed())
}

// TestRemoveIsRefusedBeforeTakeover: a closed generation with the only states of a fold stays, unless the states of
// that fold are removed first. States of a running fold stay too.
func TestRemoveIsRefusedBeforeTakeover(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.batches(9, 20)
	f.finish()
	f.topo = reshard(t, f.admin, 3)
	if _, err := shard.RemoveGeneration(t.Context(), f.admin, 1); err == nil ||
		!strings.Contains(err.Error(), "chain has not taken over") {
		t.Fatalf("a generation that was not taken over is removed: %v", err)
	}
	i := f.instance("a", newChain)
	eventually(t, "it is taken over", func() bool { return f.allSaved() })
	if _, err := shard.RemoveStates(t.Context(), f.admin, "chain"); err == nil ||
		!strings.Contains(err.Error(), "instance a runs it") {
		t.Errorf("states of a fold that runs are removed: %v", err)
	}
	i.stop()
	if _, err := shard.RemoveGeneration(t.Context(), f.admin, 1); err != nil {
		t.Error(err)
	}
	f.topo = topologyOf(t, f.admin)
	f.batches(9, 20)
	f.finish()
	f.expectSums(f.committed(), newChain)

	f.topo = reshard(t, f.admin, 2)
	if _, err := shard.RemoveStates(t.Context(), f.admin, "chain"); err != nil {
		t.Fatal(err)
	}
	if n := info(t, f.admin, schema.StateStream).State.Msgs; n != 0 {
		t.Errorf("%d messages of states are left", n)
	}
	if _, err := shard.RemoveStates(t.Context(), f.admin, "chain"); err == nil {
		t.Error("there was nothing to remove")
	}
	if _, err := shard.RemoveGeneration(t.Context(), f.admin, 2); err != nil {
		t.Error(err)
	}
}
