package consumer

import (
	"context"
	"fmt"
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
	if drained, _, err := r.drained(t.Context(), 0, &m); drained || err != nil {
		t.Errorf("a checkpoint of another end: drained %t, %v", drained, err)
	}
	f.finish()
	if m = f.manifest(0); !m.Stored.Equal(other.Stored.Add(-time.Second)) {
		t.Errorf("the checkpoint still speaks of the other end: %s", m.Stored)
	}
	f.expectSums(f.committed(), newChain)
}

// hungJS answers what is asked of the states when it is told to.
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

// TestNoAnswerIsNoNo: whether a generation was taken over is not known without an answer; an instance takes part all the same, and
// claims no closed shard before it knows.
func TestNoAnswerIsNoNo(t *testing.T) {
	f := newFleet(t, 1)
	f.batches(9, 20)
	f.finish()
	f.topo = reshard(t, f.admin, 40)
	f.finish()
	epoch := f.manifest(0).Epoch
	js := hungJS{f.bus.connect(), make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if taken, err := takenUp(ctx, js, "chain", &f.topo); taken || err == nil {
		t.Errorf("without an answer: taken up %t, %v", taken, err)
	}
	if err := takenOver(ctx, js, &f.topo.Previous[0], &f.topo); err == nil || strings.Contains(err.Error(), "rm --fold") {
		t.Errorf("without an answer it says %v", err)
	}
	c := New(Options{Instance: "a", Checkpoint: 50 * time.Millisecond}, js, newChain, slog.New(slog.DiscardHandler))
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(running) }()
	<-c.Ready()
	if list := c.all(); slices.ContainsFunc(list, func(o *owned) bool { return o.shard == 0 }) || len(list) != 40 {
		t.Errorf("it claims %d shards of 40, or the closed one", len(list))
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

// heartbeats takes nothing else.
type heartbeats struct{ *chain }

func (heartbeats) Kinds() []schema.Kind { return []schema.Kind{schema.KindHost} }

// aheadStream has a leader that holds one message more than any replica.
type aheadStream struct{ jetstream.Stream }

func (a aheadStream) CachedInfo() *jetstream.StreamInfo {
	info := *a.Stream.CachedInfo()
	info.State.LastSeq++
	info.State.Msgs++
	return &info
}

// TestWhatIsBehindACheckpoint: of one kind, and of several, where some messages were removed.
func TestWhatIsBehindACheckpoint(t *testing.T) {
	js := connectReady(t)
	host := func(seqs ...uint64) {
		for _, seq := range seqs {
			publish(t, js, schema.KindHost, message(1, seq, schema.KindHost))
		}
	}
	of := func() jetstream.Stream {
		s, err := js.Stream(t.Context(), schema.StreamName(0))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	several := newReader(ReaderOptions{}, js, newChain(), slog.New(slog.DiscardHandler))
	one := newReader(ReaderOptions{}, js, heartbeats{newChain().(*chain)}, slog.New(slog.DiscardHandler))
	expect := func(r *Reader, s jetstream.Stream, sequence uint64, want, known bool) {
		t.Helper()
		if got, err := r.nothingBehind(t.Context(), s, 0, sequence); got != want || (err == nil) != known {
			t.Errorf("nothing is behind message %d: %t, %v", sequence, got, err)
		}
	}
	publishMemory(t, js, 1, 2)
	expect(one, of(), 0, true, true)
	host(1, 2)
	publishMemory(t, js, 3)
	for sequence, want := range []bool{false, false, false, false, true, true} {
		expect(one, of(), uint64(sequence), want, true)
		expect(several, of(), uint64(sequence), sequence == 5, true)
	}
	expect(one, aheadStream{of()}, 3, false, true)
	expect(one, aheadStream{of()}, 4, false, false)
	host(3)
	if err := of().Purge(t.Context(), jetstream.WithPurgeSubject(schema.Subject(0, "c", "h", schema.KindHost))); err != nil {
		t.Fatal(err)
	}
	for sequence := range uint64(7) { // 3, 4 and 6 are gone
		expect(one, of(), sequence, true, true)
		expect(several, of(), sequence, sequence >= 5, true)
	}
}

// TestBehindOfManyHosts: more hosts than one answer speaks of.
func TestBehindOfManyHosts(t *testing.T) {
	js := connectReady(t)
	const hosts = 1500
	for n := range hosts {
		if _, err := js.PublishAsync(schema.Subject(0, "c", fmt.Sprint("h", n), schema.KindHost), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	publishMemory(t, js, 1)
	jsStream, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(ReaderOptions{}, js, heartbeats{newChain().(*chain)}, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		of          jetstream.Stream
		sequence    uint64
		want, known bool
	}{
		{jsStream, 0, false, true}, {jsStream, hosts - 1, false, true}, {jsStream, hosts, true, true},
		{aheadStream{jsStream}, hosts, false, false},
	} {
		if got, err := r.nothingBehind(t.Context(), tt.of, 0, tt.sequence); got != tt.want || (err == nil) != tt.known {
			t.Errorf("nothing is behind message %d of %d: %t, %v", tt.sequence, hosts, got, err)
		}
	}
}

// TestRemoveWhatANewerProgramFolded: a generation stays when nobody here can tell what a fold has saved of it.
func TestRemoveWhatANewerProgramFolded(t *testing.T) {
	f := newFleet(t, 1)
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	manifest := fmt.Appendf(nil, `{"form":%d,"epoch":7,"elsewhere":true}`, manifestForm+1)
	if _, err := f.admin.Publish(t.Context(), store.subject("m"), manifest); err != nil {
		t.Fatal(err)
	}
	reshard(t, f.admin, 2)
	if _, err := RemoveGeneration(t.Context(), f.admin, 1); err == nil || !strings.Contains(err.Error(), "chain has not taken over") {
		t.Errorf("it is removed: %v", err)
	}
}

// TestClosedStreamThatIsGone: nobody waits for it, and that what it held is lost is said.
func TestClosedStreamThatIsGone(t *testing.T) {
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
		for _, o := range i.all() {
			if r, _, _ := o.view(); r != nil && r.Stats().Batches == 1 && r.Stats().Missing == 2 {
				return true
			}
		}
		return false
	})
	i.stop()
	if n := strings.Count(f.log.text.String(), "streams of the generation before are gone"); n != 2 {
		t.Errorf("it is said %d times by two shards", n)
	}
}

// TestHostInAShardOfOthers: what came of a host on a shard that is not its own stays there, and keeps no shard from inheriting.
func TestHostInAShardOfOthers(t *testing.T) {
	f := newFleet(t, 2)
	f.batches(9, 18)
	data := encode(schema.KindMemory, schema.Header{Cluster: "c", Host: "h0", BootID: "b", Run: 7, Seq: 1})
	if _, err := f.admin.Publish(t.Context(), schema.Subject(1-f.topo.Shard("c", "h0"), "c", "h0", schema.KindMemory), data); err != nil {
		t.Fatal(err)
	}
	f.topo = reshard(t, f.admin, 3)
	f.batches(9, 18)
	f.finish()
	f.expectSums(f.committed(), newChain)
}
