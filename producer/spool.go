package producer

import (
	"context"
	"sync"

	"github.com/gputap/gputap/schema"
)

// encoded is one batch that waits for its ack.
type encoded struct {
	data   []byte
	seq    uint64
	events int
	last   schema.KTime
}

// spool holds encoded batches while the bus is slow or away, in order per kind, up to a number of
// bytes. What does not fit pushes out the oldest batches of the least precious kind: launches
// first, memory last. A batch that is in flight is not pushed out. Safe for concurrent use.
type spool struct {
	limit int

	mu       sync.Mutex
	bytes    int
	queues   [schema.NumKinds][]*encoded
	inFlight [schema.NumKinds]bool
	free     [][]byte // buffers of batches that were acked or dropped
	dropped  uint64   // events in batches that were pushed out
	batches  uint64   // such batches
	wake     [schema.NumKinds]chan struct{}
}

// dropOrder is the order in which kinds are given up.
var dropOrder = []schema.Kind{schema.KindLaunch, schema.KindSync, schema.KindCopy, schema.KindHost, schema.KindMemory}

func newSpool(limit int) *spool {
	s := &spool{limit: limit}
	for i := range s.wake {
		s.wake[i] = make(chan struct{}, 1)
	}
	return s
}

// push copies a batch in. It never blocks and never refuses: it makes room.
func (s *spool) push(kind schema.Kind, data []byte, e encoded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes+len(data) > s.limit && s.dropOne() {
	}
	e.data = append(s.buffer(), data...)
	s.bytes += len(data)
	s.queues[kind] = append(s.queues[kind], &e)
	select {
	case s.wake[kind] <- struct{}{}:
	default:
	}
}

func (s *spool) buffer() []byte {
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b[:0]
	}
	return nil
}

func (s *spool) dropOne() bool {
	for _, kind := range dropOrder {
		q := s.queues[kind]
		first := 0
		if s.inFlight[kind] {
			first = 1
		}
		if len(q) <= first {
			continue
		}
		victim := q[first]
		s.queues[kind] = append(q[:first], q[first+1:]...)
		s.release(victim)
		s.dropped += uint64(victim.events)
		s.batches++
		return true
	}
	return false
}

func (s *spool) release(e *encoded) {
	s.bytes -= len(e.data)
	if len(s.free) < 8 {
		s.free = append(s.free, e.data)
	}
	e.data = nil
}

// next waits for the oldest batch of a kind and marks it in flight.
func (s *spool) next(ctx context.Context, kind schema.Kind) (*encoded, error) {
	for {
		s.mu.Lock()
		if q := s.queues[kind]; len(q) > 0 {
			s.inFlight[kind] = true
			s.mu.Unlock()
			return q[0], nil
		}
		s.mu.Unlock()
		select {
		case <-s.wake[kind]:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// acked removes the batch that next gave.
func (s *spool) acked(kind schema.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[kind]
	s.release(q[0])
	q[0] = nil
	s.queues[kind] = q[1:]
	s.inFlight[kind] = false
}

// refused counts a batch that will never be acked; acked removes it.
func (s *spool) refused(e *encoded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += uint64(e.events)
	s.batches++
}

// waiting reports whether a batch of the kind has not been acked yet.
func (s *spool) waiting(kind schema.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[kind]) > 0
}

// spoolLevel is what a spool holds and has given up.
type spoolLevel struct {
	batches, bytes          int
	droppedEvents, droppedN uint64
}

func (s *spool) level() spoolLevel {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := spoolLevel{bytes: s.bytes, droppedEvents: s.dropped, droppedN: s.batches}
	for _, q := range s.queues {
		l.batches += len(q)
	}
	return l
}
