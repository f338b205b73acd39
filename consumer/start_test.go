package consumer

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

// TestRestartAfterRetention: the state does not change because retention removed messages that it covers.
func TestRestartAfterRetention(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	last := publishMemory(t, js, 1, 2, 3)
	undisturbedFold, fold := newChain(), newChain()
	undisturbed, _ := start(t, js, undisturbedFold, ReaderOptions{})
	wait(t, undisturbed, last)
	before, stop := start(t, js, fold, ReaderOptions{})
	wait(t, before, last)
	stop()
	saved, err := before.State(fold)
	at := before.position()
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(last)); err != nil {
		t.Fatal(err)
	}

	fold = newChain()
	restarted := NewReader(ReaderOptions{}, js, fold, slog.New(slog.DiscardHandler))
	if err := restarted.restore(saved, fold, nil); err != nil {
		t.Fatal(err)
	}
	restarted.resume(at)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- restarted.Run(ctx) }()
	last = publishMemory(t, js, 4)
	wait(t, undisturbed, last)
	wait(t, restarted, last)
	want, err := undisturbed.State(undisturbedFold)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := restarted.State(fold); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the state is not that of an undisturbed reader: %v\n%x\n%x", err, got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLossAcrossGenerations: a fold of the generation before knows which batches are lost. A reader without it
// counts them as unseen.
func TestLossAcrossGenerations(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	for range 5 {
		f.send("h")
	}
	f.topo = reshard(t, f.admin, 2)
	number := f.topo.Shard("c", "h")
	f.seqs["h"]++ // one is lost
	f.send("h")

	whole := f.instance("whole", newChain)
	var stats Stats
	folded := func(i *instance, batches uint64) {
		t.Helper()
		eventually(t, "it is folded", func() bool {
			if r := i.reader(number); r != nil {
				stats = r.Stats()
			}
			return stats.Batches == batches
		})
	}
	folded(whole, 1)
	if stats.Missing != 1 || stats.Retention != 0 {
		t.Errorf("whoever has folded all counts %d missing and %d unseen, want 1 and 0", stats.Missing, stats.Retention)
	}
	eventually(t, "the generation before is taken over", func() bool { return f.allSaved() })
	whole.stop()

	for _, opts := range []ReaderOptions{{Shard: number}, {Shard: f.topo.Shard("c", "g"), New: true}} {
		r, stop := start(t, f.admin, newChain(), opts)
		<-r.Ready()
		if opts.New { // in a stream that holds nothing
			f.seqs["g"] = 6
			f.send("g")
		}
		wait(t, r, 1)
		if s := r.Stats(); s.Batches != 1 || s.Missing != 0 || s.Retention != 6 {
			t.Errorf("a reader of one shard, %+v, counts %d missing and %d unseen, want 0 and 6", opts, s.Missing,
				s.Retention)
		}
		stop()
	}

	if _, err := shard.RemoveGeneration(t.Context(), f.admin, 1); err != nil {
		t.Fatal(err)
	}
	other := func() Stateful { return named{newChain().(*chain), "other"} }
	late := f.instance("late", other)
	folded(late, 1)
	late.stop()
	f.send("h")
	late = f.instance("later", other)
	folded(late, 2)
	if stats.Missing != 0 || stats.Retention != 6 {
		t.Errorf("whoever began when the generation before was gone counts %d missing and %d unseen, want 0 and 6",
			stats.Missing, stats.Retention)
	}
	late.stop()
	saved, err := shard.Saved(t.Context(), f.admin, "other", number)
	if err != nil {
		t.Fatal(err)
	}
	next := NewReader(ReaderOptions{}, f.admin, newChain(), slog.New(slog.DiscardHandler))
	if err := next.restore(saved.State, newChain(), func(string, string) bool { return true }); err != nil ||
		!next.start.truncated {
		t.Errorf("the generation after it would know of all that came before: %v", err)
	}
}

// vagueStream answers requests for a message with err, if err is not nil.
type vagueStream struct {
	jetstream.Stream
	err error
}

func (v vagueStream) GetMsg(ctx context.Context, sequence uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg,
	error) {
	if v.err != nil {
		return nil, v.err
	}
	return v.Stream.GetMsg(ctx, sequence, opts...)
}

// TestResumeNeedsTheSameStream: a reader resumes in the same stream and starts again in another one. If NATS does
// not tell which, the fetch fails.
func TestResumeNeedsTheSameStream(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	publishMemory(t, js, 1, 2)
	publish(t, js, schema.KindHost, message(1, 1, schema.KindHost))
	publishMemory(t, js, 3)
	of := func(name string) jetstream.Stream {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := of(schema.StreamName(0))
	if err := s.Purge(t.Context(),
		jetstream.WithPurgeSubject(schema.Subject(0, "c", "h", schema.KindHost))); err != nil {
		t.Fatal(err)
	}
	second, err := s.GetMsg(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	at := bus.Position{Sequence: 2, Stored: second.Time, Created: s.CachedInfo().Created}
	for _, tt := range []struct {
		name   string
		answer error
		change func(*bus.Position)
		start  uint64 // 0: an error
	}{
		{"the same", nil, func(*bus.Position) {}, 3},
		{"another message", nil, func(m *bus.Position) { m.Stored = m.Stored.Add(1) }, 1},
		{"another stream", context.DeadlineExceeded, func(m *bus.Position) { m.Created = m.Created.Add(1) }, 1},
		{"a message that is gone", nil, func(m *bus.Position) { m.Sequence = 3 }, 4},
		{"an end that is gone", nil, func(m *bus.Position) { m.Sequence = 5 }, 1},
		{"no answer", context.DeadlineExceeded, func(*bus.Position) {}, 0},
		{"a replica that is behind", jetstream.ErrMsgNotFound, func(*bus.Position) {}, 0},
	} {
		r, m := newReader(ReaderOptions{}, js, newChain(), slog.New(slog.DiscardHandler)), at
		tt.change(&m)
		r.resume(m)
		r.jsStream = vagueStream{of(schema.StreamName(0)), tt.answer}
		config, err := r.startConfig(t.Context())
		if config.OptStartSeq != tt.start || (err == nil) == (tt.start == 0) {
			t.Errorf("%s: begins at %d, %v, want %d", tt.name, config.OptStartSeq, err, tt.start)
		}
		if after := r.position(); err != nil && (after.Sequence != m.Sequence || !after.Stored.Equal(m.Stored)) {
			t.Errorf("%s: the position is forgotten: %+v", tt.name, after)
		}
	}
}

// silentJS does not answer requests for the topology.
type silentJS struct{ jetstream.JetStream }

func (silentJS) KeyValue(context.Context, string) (jetstream.KeyValue, error) {
	return nil, context.DeadlineExceeded
}

// TestStartNeedsTheTopology: a reader does not begin before it knows whether there was an earlier generation.
func TestStartNeedsTheTopology(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	publishMemory(t, js, 1)
	topology := reshard(t, js, 2)
	stream, err := js.Stream(t.Context(), schema.StreamName(topology.First))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		js     jetstream.JetStream
		begins bool
	}{{silentJS{js}, false}, {js, true}} {
		r := newReader(ReaderOptions{Shard: topology.First}, tt.js, newChain(), slog.New(slog.DiscardHandler))
		r.jsStream = stream
		if _, err := r.startConfig(t.Context()); (err == nil) != tt.begins || r.start.truncated != tt.begins ||
			r.start.begun != tt.begins {
			t.Errorf("it begins: %t, its beginning is gone: %t, %v", r.start.begun, r.start.truncated, err)
		}
	}
}

// hesitantStream does not answer at first.
type hesitantStream struct {
	jetstream.Stream
	asked int
}

func (h *hesitantStream) Info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	if h.asked++; h.asked < 3 {
		return nil, context.DeadlineExceeded
	}
	return h.Stream.Info(ctx, opts...)
}

// TestUnseenReasonWaitsForAnswer checks that batches removed by retention never count as lost, even if NATS answers
// late.
func TestUnseenReasonWaitsForAnswer(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	last := publishMemory(t, js, 1, 2, 3)
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(last)); err != nil {
		t.Fatal(err)
	}
	r := newReader(ReaderOptions{}, js, newChain(), slog.New(slog.DiscardHandler))
	r.jsStream = &hesitantStream{Stream: s}
	if reason := r.unseenReason(schema.KindMemory); reason != reasonRetention {
		t.Errorf("the reason is %q", reason)
	}
}

// TestRemovedBatchesAreNotLost: batches that were removed before a fold began, by retention or with a generation,
// count as unseen.
func TestRemovedBatchesAreNotLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		take func(t *testing.T, f *fleet)
	}{
		{"a generation in between", func(t *testing.T, f *fleet) {
			f.topo = reshard(t, f.admin, 2)
			f.batches(3, 9)
			f.topo = reshard(t, f.admin, 1)
			if _, err := shard.RemoveGeneration(t.Context(), f.admin, 2); err != nil {
				t.Fatal(err)
			}
		}},
		{"all of the first", func(t *testing.T, f *fleet) {
			f.batches(3, 9)
			s, err := f.admin.Stream(t.Context(), schema.StreamName(0))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.topo = reshard(t, f.admin, 2)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, 1)
			tt.take(t, f)
			f.topo = topologyOf(t, f.admin)
			f.batches(3, 3)
			i := f.instance("a", newChain)
			var sum Stats
			eventually(t, "it is folded", func() bool {
				sum = i.sums(f.topo)
				return sum.Batches == 3
			})
			if sum.Missing != 0 || sum.Retention != 9 {
				t.Errorf("%d missing and %d unseen, want 0 and 9", sum.Missing, sum.Retention)
			}
		})
	}
}
