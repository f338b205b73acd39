package producer

import (
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestBatchGrowsWhileTwoAreWaiting: a batch is closed at BatchEvents while at most one is not acked, so that the next
// is always queued; while two are not acked it grows.
func TestBatchGrowsWhileTwoAreWaiting(t *testing.T) {
	r := newTestTranslator()
	limit, s := r.batches.limits.events, r.batches.spool
	add := func(n int) {
		for range n {
			r.batches.open[schema.KindLaunch].AddLaunch(&schema.Launch{Time: 1})
			r.batches.added(schema.KindLaunch, 1)
		}
	}
	add(limit)
	if _, err := s.next(t.Context(), schema.KindLaunch); err != nil {
		t.Fatal(err)
	}
	add(limit)
	if n := s.waiting(schema.KindLaunch); n != 2 {
		t.Fatalf("%d batches wait, want one in flight and one ready", n)
	}
	add(2 * limit)
	if n := s.waiting(schema.KindLaunch); n != 2 {
		t.Fatalf("%d batches wait, want the third to grow", n)
	}
	s.acked(schema.KindLaunch)
	add(512) // the size is checked every 512 events
	if n, third := s.waiting(schema.KindLaunch), s.queues[schema.KindLaunch][1].Events; n != 2 || third != 2*limit+512 {
		t.Errorf("%d batches wait, the latest of %d events, want 2 and %d", n, third, 2*limit+512)
	}
	add(grownEvents + 512)
	if n := s.waiting(schema.KindLaunch); n != 3 {
		t.Errorf("%d batches wait, want the largest to be closed too", n)
	}
}

// TestSecondThreadWhileRingsFill: the program gets a second thread, once, when a ring is half full, and has one again a
// second later.
func TestSecondThreadWhileRingsFill(t *testing.T) {
	var asked []int
	r := gomaxprocs{set: func(n int) { asked = append(asked, n) }}
	for _, at := range []struct {
		fill uint64
		now  schema.KTime
		want []int
	}{
		{fill: busyFill - 1, now: 1},
		{fill: busyFill, now: 2, want: []int{2}},
		{fill: busyFill, now: 1 + busyFor},
		{fill: 0, now: 2*busyFor - 1},
		{fill: 0, now: 1 + 2*busyFor, want: []int{1}},
		{fill: 0, now: 2 + 2*busyFor},
	} {
		asked = nil
		if r.adjust(at.fill, at.now); len(asked) != len(at.want) || len(asked) > 0 && asked[0] != at.want[0] {
			t.Errorf("ring filled to %d at %d: asked for %v, want %v", at.fill, at.now, asked, at.want)
		}
	}
	(&gomaxprocs{}).adjust(busyFill, 1) // without a function
}
