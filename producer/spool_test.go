package producer

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

func push(s *spool, kind schema.Kind, bytes, events int) {
	s.push(outbox.Batch{Kind: kind, Data: make([]byte, bytes), Events: events})
}

func TestSpoolGivesUpLaunchesFirstAndMemoryLast(t *testing.T) {
	s := newSpool(300)
	push(s, schema.KindMemory, 100, 1)
	push(s, schema.KindLaunch, 100, 10)
	push(s, schema.KindCopy, 100, 100)
	push(s, schema.KindMemory, 100, 1) // pushes out the launches
	if l := s.level(); l.droppedEvents != 10 || l.bytes != 300 {
		t.Errorf("level %+v, want 10 launches dropped and 300 bytes", l)
	}
	push(s, schema.KindMemory, 100, 1) // the copies
	push(s, schema.KindMemory, 100, 1) // the oldest memory batch
	if l := s.level(); l.droppedEvents != 111 || l.bytes != 300 || l.batches != 3 {
		t.Errorf("level %+v, want 111 events dropped and three batches kept", l)
	}
}

func TestSpoolKeepsMemoryFromLaunches(t *testing.T) {
	s := newSpool(300)
	push(s, schema.KindLaunch, 100, 1)
	push(s, schema.KindMemory, 100, 10)
	push(s, schema.KindMemory, 100, 10)
	push(s, schema.KindLaunch, 200, 100) // the older launches go, and it does not fit
	if l := s.level(); l.droppedEvents != 101 || s.waiting(schema.KindMemory) != 2 ||
		s.waiting(schema.KindLaunch) != 0 {
		t.Errorf("level %+v, want the launches given up and both memory batches kept", l)
	}
	push(s, schema.KindLaunch, 100, 1)
	if l := s.level(); l.droppedEvents != 101 || l.bytes != 300 {
		t.Errorf("level %+v, want a launch that fits kept", l)
	}
}

func TestSpoolKeepsWhatIsInFlight(t *testing.T) {
	s := newSpool(200)
	push(s, schema.KindLaunch, 100, 1)
	first, err := s.next(t.Context(), schema.KindLaunch)
	if err != nil {
		t.Fatal(err)
	}
	push(s, schema.KindLaunch, 100, 2)
	push(s, schema.KindLaunch, 100, 3)
	if l := s.level(); l.droppedEvents != 2 {
		t.Errorf("dropped %d events, want the second batch's 2", l.droppedEvents)
	}
	if len(first.Data) != 100 {
		t.Error("the batch in flight lost its bytes")
	}
	s.acked(schema.KindLaunch)
	if next, _ := s.next(t.Context(), schema.KindLaunch); next.Events != 3 {
		t.Errorf("next has %d events, want 3", next.Events)
	}
}

func TestSpoolWakesItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpool(1000)
		got := make(chan int)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for {
				e, err := s.next(ctx, schema.KindCopy)
				if err != nil {
					close(got)
					return
				}
				got <- e.Events
				s.acked(schema.KindCopy)
			}
		}()
		synctest.Wait()
		push(s, schema.KindCopy, 10, 7)
		push(s, schema.KindCopy, 10, 8)
		if a, b := <-got, <-got; a != 7 || b != 8 {
			t.Errorf("got %d then %d, want 7 then 8", a, b)
		}
		synctest.Wait()
		if s.waiting(schema.KindCopy) != 0 {
			t.Error("an acked batch still waits")
		}
		cancel()
		if _, open := <-got; open {
			t.Error("next goes on after its context")
		}
	})
}
