package consumer

import (
	"slices"
	"sync"
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestCompleteWhenEveryKindHasCome: a time is complete when the last batch of each of the fold's kinds has come, in
// whatever order batches and heartbeats arrive.
func TestCompleteWhenEveryKindHasCome(t *testing.T) {
	kinds := []schema.Kind{schema.KindMemory, schema.KindLaunch}
	batch := func(kind schema.Kind, seq uint64) *schema.Header { return &schema.Header{Kind: kind, Seq: seq} }
	beat := func(memory, launch, other uint64, through schema.KTime) []schema.End {
		return []schema.End{
			{Kind: schema.KindMemory, Seq: memory, Through: through},
			{Kind: schema.KindLaunch, Seq: launch, Through: through},
			{Kind: schema.KindCopy, Seq: other, Through: through - 1},
			{Kind: schema.KindNone, Seq: 1, Through: 1}, // of a newer producer
		}
	}
	type step struct {
		batch *schema.Header
		ends  []schema.End
		want  schema.KTime
	}
	for _, row := range []struct {
		name  string
		steps []step
	}{
		{"batches before the heartbeat", []step{
			{batch: batch(schema.KindMemory, 1)}, {batch: batch(schema.KindLaunch, 1)},
			{ends: beat(1, 1, 9, 100), want: 100},
		}},
		{"batches behind the heartbeat", []step{
			{ends: beat(2, 1, 9, 100)}, {batch: batch(schema.KindMemory, 1)}, {batch: batch(schema.KindLaunch, 1)},
			{batch: batch(schema.KindMemory, 2), want: 100},
		}},
		{"no batch at all", []step{{ends: beat(0, 0, 9, 100), want: 100}, {ends: beat(0, 0, 9, 200), want: 200}}},
		{"a batch completes two heartbeats", []step{
			{ends: beat(0, 1, 0, 100)}, {ends: beat(0, 2, 0, 200)}, {batch: batch(schema.KindLaunch, 2), want: 200},
		}},
		{"a lost batch does not wait for ever", []step{
			{ends: beat(1, 0, 0, 100)}, {batch: batch(schema.KindMemory, 2), want: 100},
		}},
		{"the reader began after the batches of a kind", []step{
			{batch: batch(schema.KindLaunch, 7)}, {ends: beat(5, 7, 0, 100)}, {ends: beat(5, 7, 0, 200), want: 100},
			{batch: batch(schema.KindMemory, 6), want: 200},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var s runState
			for i, step := range row.steps {
				if step.batch != nil {
					s.accept(step.batch)
				} else {
					s.expect(step.ends, kinds)
				}
				if got := s.complete(); got != step.want {
					t.Errorf("step %d: complete through %d, want %d", i, got, step.want)
				}
			}
		})
	}
}

func TestWaitingHeartbeatsAreBounded(t *testing.T) {
	var s runState
	for i := range uint64(1000) {
		s.expect([]schema.End{{Kind: schema.KindMemory, Seq: i + 1, Through: schema.KTime(i)}},
			[]schema.Kind{schema.KindMemory})
	}
	if s.seq[schema.KindMemory] = 1000; len(s.ends) > maxEnds || s.complete() != 999 {
		t.Errorf("%d heartbeats wait", len(s.ends))
	}
}

// TestFoldTicks runs a Reader whose fold has a Tick.
func TestFoldTicks(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	fold := &ticker{}
	c, _ := start(t, js, fold, ReaderOptions{})
	publish(t, js, schema.KindMemory, memory(1))
	b := schema.NewBuilder(schema.KindHost)
	b.Ends = []schema.End{{Kind: schema.KindMemory, Seq: 2, Through: 50}}
	publish(t, js, schema.KindHost, b.Encode(&schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: 1}))
	last := publish(t, js, schema.KindMemory, memory(2))
	wait(t, c, last)
	fold.ticking.Lock()
	defer fold.ticking.Unlock()
	if want := []tick{{"h", "b", 50, 2}}; !slices.Equal(fold.ticks, want) {
		t.Errorf("ticks %v, want %v", fold.ticks, want)
	}
}

type tick struct {
	host, boot string
	through    schema.KTime
	applied    int // batches with events before it
}

type ticker struct {
	recorder
	ticking sync.Mutex
	ticks   []tick
}

func (f *ticker) Tick(h *schema.Header, through schema.KTime) {
	f.ticking.Lock()
	defer f.ticking.Unlock()
	f.ticks = append(f.ticks, tick{h.Host, h.BootID, through, len(f.seen())})
}
