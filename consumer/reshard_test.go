package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
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

// TestReshardTwiceWhileDown: two numbers of shards come and go while nobody folds. The states of the last ones hold what all
// generations do, also of a fold that begins then.
func TestReshardTwiceWhileDown(t *testing.T) {
	for _, tt := range []struct {
		name    string
		folded  bool
		hosts   int
		between int
	}{{"folded before", true, 9, 50}, {"folded never", false, 9, 50}, {"nothing comes between", true, 9, 0}, {"most shards are blank", true, 1, 50}} {
		t.Run(tt.name, func(t *testing.T) {
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
			if gaps := strings.Count(f.log.text.String(), "batches are missing"); gaps > 0 {
				t.Errorf("%d gaps, and nothing was lost", gaps)
			}
		})
	}
}

// TestClosedShardsAreNotOwnedAgain: what the next generation has taken over, no instance claims and shows beside it.
func TestClosedShardsAreNotOwnedAgain(t *testing.T) {
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

// TestRebuiltStateInherits: a state that cannot be read is made of its stream and of what the closed generation holds.
func TestRebuiltStateInherits(t *testing.T) {
	f := newFleet(t, 2)
	f.batches(9, 50)
	f.finish()
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 50)
	f.finish()
	for _, shard := range f.topo.Numbers() {
		store := &checkpoints{js: f.admin, fold: "chain", shard: shard}
		m := f.manifest(shard)
		if _, err := f.admin.Publish(t.Context(), store.partSubject(&m, 0), []byte("damaged")); err != nil {
			t.Fatal(err)
		}
	}
	f.finish()
	f.expectSums(f.committed(), newChain)
	if n := strings.Count(f.log.text.String(), "saved state cannot be used"); n != 3 {
		t.Errorf("%d states were rebuilt", n)
	}
}

// staleJS answers what is asked of a message of shard 0 as a replica does that has nothing of the stream's end yet.
type staleJS struct{ jetstream.JetStream }

func (s staleJS) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := s.JetStream.Stream(ctx, name)
	if err != nil || name != schema.StreamName(0) {
		return stream, err
	}
	return staleStream{stream}, nil
}

type staleStream struct{ jetstream.Stream }

func (staleStream) GetMsg(context.Context, uint64, ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	return nil, jetstream.ErrMsgNotFound
}

// TestStaleReplica: a replica that is behind does not make a closed shard one that is folded to its end.
func TestStaleReplica(t *testing.T) {
	f := newFleet(t, 1)
	f.batches(9, 20)
	reshard(t, f.admin, 2)
	r := newReader(ReaderOptions{}, staleJS{f.admin}, newChain(), slog.New(slog.DiscardHandler))
	for sequence, want := range map[uint64]bool{0: false, 19: false, 20: true} {
		if drained, _, err := r.drained(t.Context(), 0, &manifest{Sequence: sequence}); err != nil || drained != want {
			t.Errorf("behind message %d of 20: drained %t, %v", sequence, drained, err)
		}
	}
}

// slowRestore notes how many states are taken up at once.
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

// TestInheritOneAfterTheOther: shards that inherit have the states of a whole generation pass by, one at a time.
func TestInheritOneAfterTheOther(t *testing.T) {
	f := newFleet(t, 1)
	f.batches(9, 50)
	f.finish()
	f.topo = reshard(t, f.admin, 8)
	var now, most atomic.Int32
	i := f.instance("a", func() Stateful { return slowRestore{newChain().(*chain), &now, &most} })
	eventually(t, "all shards have saved what they inherited", func() bool {
		return !slices.ContainsFunc(f.topo.Numbers(), func(shard int) bool { m := f.manifest(shard); return !m.saved() })
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

func (f *fleet) manifest(shard int) manifest {
	f.t.Helper()
	m, err := (&checkpoints{js: f.admin, fold: "chain", shard: shard}).latest(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// TestFinishedOnABusBefore: a shard that ended while its bus was taken away is not finished on the bus that came after.
func TestFinishedOnABusBefore(t *testing.T) {
	f := newFleet(t, 1)
	i := f.instance("a", newChain)
	f.send("h")
	eventually(t, "the shard is owned", func() bool { return slices.Equal(i.shards(), []int{0}) })
	plan, err := PlanStreams(t.Context(), f.admin, StreamOptions{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range plan.Steps { // an init that is broken off between the topology and the sealing
		if step.Action == "close" {
			break
		}
		if err := step.do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the shard is known to be closed", func() bool {
		return slices.ContainsFunc(i.all(), func(o *owned) bool { return o.shard == 0 && o.closed.Load() })
	})
	if _, err := RemoveStreams(t.Context(), f.admin); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard has ended", func() bool { return len(i.all()) == 0 })
	if err := EnsureStreams(t.Context(), f.admin, StreamOptions{Shards: 1, MaxBytes: 128 << 20, Lease: f.lease}); err != nil {
		t.Fatal(err)
	}
	f.topo, f.seqs, f.sums = schema.Topology{Generation: 1, Shards: 1}, map[string]uint64{}, map[string]uint64{}
	f.batches(9, 20)
	eventually(t, "the new shard is owned", func() bool { return slices.Equal(i.shards(), []int{0}) })
	i.stop()
	f.finish()
	f.expect(f.committed())
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

// TestRemoveBeforeTakenOver: a closed generation stays while a fold has states there that are nowhere else, unless that fold is
// forgotten. Neither are the states of one that runs.
func TestRemoveBeforeTakenOver(t *testing.T) {
	f := newFleet(t, 2)
	f.batches(9, 20)
	f.finish()
	f.topo = reshard(t, f.admin, 3)
	if _, err := RemoveGeneration(t.Context(), f.admin, 1); err == nil || !strings.Contains(err.Error(), "chain has not taken over") {
		t.Fatalf("a generation that was not taken over is removed: %v", err)
	}
	i := f.instance("a", newChain)
	eventually(t, "it is taken over", func() bool { return takenOver(t.Context(), f.admin, &f.topo.Previous[0], &f.topo) == nil })
	if _, err := RemoveStates(t.Context(), f.admin, "chain"); err == nil || !strings.Contains(err.Error(), "is run by a") {
		t.Errorf("states of a fold that runs are removed: %v", err)
	}
	i.stop()
	if _, err := RemoveGeneration(t.Context(), f.admin, 1); err != nil {
		t.Error(err)
	}
	f.topo = topologyOf(t, f.admin)
	f.batches(9, 20)
	f.finish()
	f.expectSums(f.committed(), newChain)

	f.topo = reshard(t, f.admin, 2)
	if _, err := RemoveStates(t.Context(), f.admin, "chain"); err != nil {
		t.Fatal(err)
	}
	if n := info(t, f.admin, schema.StateStream).State.Msgs; n != 0 {
		t.Errorf("%d messages of states are left", n)
	}
	if _, err := RemoveStates(t.Context(), f.admin, "chain"); err == nil {
		t.Error("there was nothing to remove")
	}
	if _, err := RemoveGeneration(t.Context(), f.admin, 2); err != nil {
		t.Error(err)
	}
}
