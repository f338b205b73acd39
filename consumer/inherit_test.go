package consumer

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

// letGo waits until an instance has seen how shards ended that it owned.
func (i *instance) letGo(t *testing.T, shards ...int) {
	t.Helper()
	eventually(t, "closed shards are finished", func() bool {
		return !slices.ContainsFunc(shards, func(number int) bool { return i.reader(number) != nil })
	})
}

// TestPurgedStatesAreFoldedAgain: an instance that runs folds the closed generation again.
func TestPurgedStatesAreFoldedAgain(t *testing.T) {
	t.Parallel()
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
		return f.allSaved()
	})
	i.stop()
	f.finish()
	f.expectSums(f.committed(), newChain)
}

// TestGenerationIsKeptForStoppedFold: a fold that has only read an earlier generation still needs the later closed
// one.
func TestGenerationIsKeptForStoppedFold(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.batches(9, 20)
	f.finish()
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 20)
	f.topo = reshard(t, f.admin, 2)
	f.batches(9, 20)
	if _, err := shard.RemoveGeneration(t.Context(), f.admin, 2); err == nil ||
		!strings.Contains(err.Error(), "chain has not taken over its states of generation 1") {
		t.Errorf("a generation that a fold has not seen is removed: %v", err)
	}
	f.finish()
	f.expectSums(f.committed(), newChain)
	if _, err := shard.RemoveGeneration(t.Context(), f.admin, 2); err != nil {
		t.Error(err)
	}
}

// TestRecreatedClosedShardIsFolded: it is folded to its end before a shard of the next generation inherits from it.
func TestRecreatedClosedShardIsFolded(t *testing.T) {
	t.Parallel()
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
		if strings.Contains(f.log.text.String(), "missing batches") {
			t.Errorf("%d batches: a gap, and nothing was lost", batches)
		}
	}
}

// TestClosedShardWithAnotherEndIsFolded: the checkpoint refers to an end that was lost, and whose sequences were
// used again.
func TestClosedShardWithAnotherEndIsFolded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.batches(3, 30)
	f.finish()
	var other map[string]any
	if err := json.Unmarshal(f.rawManifest(0), &other); err != nil {
		t.Fatal(err)
	}
	stored := f.manifest(0).Stored
	other["stored"] = stored.Add(time.Second)
	data, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.Publish(t.Context(), manifestSubject(0), data); err != nil {
		t.Fatal(err)
	}
	f.topo = reshard(t, f.admin, 2)
	f.finish()
	if m := f.manifest(0); !m.Stored.Equal(stored) {
		t.Errorf("the checkpoint still speaks of the other end: %s", m.Stored)
	}
	f.expectSums(f.committed(), newChain)
}

// hungJS does not answer requests for states before answers is closed.
type hungJS struct {
	jetstream.JetStream
	answers chan struct{} // closed then
}

func (h hungJS) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := h.JetStream.Stream(ctx, name)
	if err != nil || name != schema.StateStream {
		return stream, err
	}
	return hungStream{stream, h.answers}, nil
}

type hungStream struct {
	jetstream.Stream
	answers chan struct{}
}

func (h hungStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	select {
	case <-h.answers:
		return h.Stream.GetLastMsgForSubject(ctx, subject)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestClosedShardIsNotClaimedWithoutAnswer checks an instance that cannot ask for the takeover of a generation. It
// joins the group and claims no closed shard.
func TestClosedShardIsNotClaimedWithoutAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.batches(9, 20)
	f.finish()
	f.topo = reshard(t, f.admin, 40)
	f.finish()
	epoch := f.manifest(0).Epoch
	js := hungJS{f.bus.Connect(), make(chan struct{})}
	c := New(Options{Instance: "a", Checkpoint: 50 * time.Millisecond, Retry: retry}, js, newChain,
		slog.New(slog.DiscardHandler))
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(running) }()
	<-c.Ready()
	eventually(t, "it claims the present shards", func() bool { return len(f.leases("chain.")) == 40 })
	if _, claimed := f.leases("chain.")["0"]; claimed {
		t.Error("it claims the closed shard")
	}
	close(js.answers)
	eventually(t, "the shards are owned", func() bool {
		n := 0
		c.Each(func(int, Stateful) { n++ })
		return n == 40
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if now := f.manifest(0).Epoch; now != epoch {
		t.Errorf("the closed shard was claimed again: epoch %d, was %d", now, epoch)
	}
}

// TestMissingClosedStreamIsLogged: the next generation does not wait for it.
func TestMissingClosedStreamIsLogged(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.batches(1, 3)
	f.finish()
	f.batches(1, 2)
	f.topo = reshard(t, f.admin, 2)
	if err := f.admin.DeleteStream(t.Context(), schema.StreamName(0)); err != nil {
		t.Fatal(err)
	}
	f.send("h0")
	i := f.instance("a", newChain)
	eventually(t, "what came since is folded", func() bool {
		if !slices.Equal(i.shards(), f.topo.Numbers()) {
			return false
		}
		for _, number := range f.topo.Numbers() {
			if r := i.reader(number); r != nil && r.Stats().Batches == 1 && r.Stats().Missing == 2 {
				return true
			}
		}
		return false
	})
	i.stop()
	if n := strings.Count(f.log.text.String(), "streams of the generation before do not exist"); n != 2 {
		t.Errorf("it is logged %d times by two shards", n)
	}
}

// TestMisplacedHostIsNotInherited: the batches of a host on a wrong shard stay there, and no shard waits for them.
func TestMisplacedHostIsNotInherited(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.batches(9, 18)
	data := encode(schema.KindMemory, schema.Header{Cluster: "c", Host: "h0", BootID: "b", Run: 7, Seq: 1})
	if _, err := f.admin.Publish(t.Context(), schema.Subject(1-f.topo.Shard("c", "h0"), "c", "h0", schema.KindMemory),
		data); err != nil {
		t.Fatal(err)
	}
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 18)
	f.finish()
	f.expectSums(f.committed(), newChain)
}
