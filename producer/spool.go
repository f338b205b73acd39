package producer

import (
	"context"
	"slices"
	"sync"

	"github.com/gputap/gputap/schema"
)

// encoded is one batch that waits for its ack.
type encoded struct {
	data   []byte
	seq    uint64
	events int
	last   schema.KTime // 0 for a batch of an earlier run
	at     int64        // wall time at which it was closed, ns
	from   *segment     // of a batch of an earlier run

	// With an outbox.
	mark    mark // where it is stored; no segment: memory alone has it
	writing bool // it is being stored
	done    bool // it was acked meanwhile
	refused bool // and will never be acked
}

// behind is the place after it.
func (e *encoded) behind() mark { return e.mark.behind(len(e.data), e.events) }

// spool holds encoded batches while the bus is slow or away, in order per kind, up to a number of
// bytes. What does not fit pushes out the oldest batches of the least precious kind: launches
// first, memory last; where all are more precious than it is, it is given up itself. A batch that is in flight is not pushed
// out. With an outbox a batch is given out when it is
// stored there, what is stored can be pushed out without loss, and what earlier runs stored comes first.
// Safe for concurrent use.
type spool struct {
	limit  int
	outbox *outbox // nil: memory alone

	mu        sync.Mutex
	bytes     int
	queues    [schema.NumKinds][]*encoded
	stored    [schema.NumKinds]int      // how many at the beginning of a queue are in the outbox
	inFlight  [schema.NumKinds]*encoded // in its queue, or read from the outbox
	free      [][]byte                  // buffers of batches that were acked or dropped
	dropped   uint64                    // events in batches that were pushed out
	batches   uint64                    // such batches
	wake      [schema.NumKinds]chan struct{}
	read      [schema.NumKinds]reading // only a kind's publisher
	unwritten chan struct{}            // wakes the goroutine that writes the outbox
}

// dropOrder is the order in which kinds are given up.
var dropOrder = []schema.Kind{schema.KindLaunch, schema.KindSync, schema.KindCopy, schema.KindHost, schema.KindMemory}

func morePrecious(a, b schema.Kind) bool {
	return slices.Index(dropOrder, a) > slices.Index(dropOrder, b)
}

func newSpool(limit int) *spool {
	s := &spool{limit: limit, unwritten: make(chan struct{}, 1)}
	for i := range s.wake {
		s.wake[i] = make(chan struct{}, 1)
	}
	return s
}

// push copies a batch in. It never blocks: it makes room, or counts the batch as lost.
func (s *spool) push(kind schema.Kind, data []byte, e encoded) {
	if s.outbox != nil {
		s.notice()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes+len(data) > s.limit && s.evict() {
	}
	for s.bytes+len(data) > s.limit {
		victim, i, ok := s.cheapest()
		if !ok {
			break // all is in flight
		}
		if morePrecious(victim, kind) {
			s.dropped += uint64(e.events)
			s.batches++
			return
		}
		s.giveUp(victim, i)
	}
	e.data = append(s.buffer(), data...)
	s.bytes += len(data)
	s.queues[kind] = append(s.queues[kind], &e)
	if s.outbox == nil || s.outbox.failing {
		s.wakeUp(kind)
		return
	}
	s.more()
}

// more wakes the goroutine that writes the outbox.
func (s *spool) more() {
	select {
	case s.unwritten <- struct{}{}:
	default:
	}
}

func (s *spool) wakeUp(kind schema.Kind) {
	select {
	case s.wake[kind] <- struct{}{}:
	default:
	}
}

func (s *spool) wakeAll() {
	for kind := range s.wake {
		s.wakeUp(schema.Kind(kind))
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

// first is the oldest batch of a queue that is not in flight.
func (s *spool) first(kind schema.Kind) int {
	if q := s.queues[kind]; len(q) > 0 && q[0] == s.inFlight[kind] {
		return 1
	}
	return 0
}

// evict takes a batch out of memory that is in the outbox.
func (s *spool) evict() bool {
	for _, kind := range dropOrder {
		if i := s.first(kind); s.stored[kind] > i {
			q := s.queues[kind]
			s.release(q[i])
			copy(q[1:i+1], q[:i]) // the one in flight, if any
			q[0] = nil
			s.queues[kind] = q[1:]
			s.stored[kind]--
			return true
		}
	}
	return false
}

// cheapest is the oldest batch of the least precious kind that memory alone holds and that may go.
func (s *spool) cheapest() (kind schema.Kind, i int, ok bool) {
	for _, kind := range dropOrder {
		q := s.queues[kind]
		i := max(s.first(kind), s.stored[kind])
		if i < len(q) && q[i].writing {
			i++
		}
		if i < len(q) {
			return kind, i, true
		}
	}
	return 0, 0, false
}

// giveUp counts a batch of a queue as lost.
func (s *spool) giveUp(kind schema.Kind, i int) {
	q := s.queues[kind]
	victim := q[i]
	s.queues[kind] = append(q[:i], q[i+1:]...)
	s.release(victim)
	s.dropped += uint64(victim.events)
	s.batches++
}

// forget takes the batches out of memory whose segment was given up.
func (s *spool) forget(kind schema.Kind, seg *segment) {
	q := s.queues[kind]
	kept := q[:0]
	for _, e := range q {
		if e.mark.seg == seg {
			s.release(e)
			s.stored[kind]--
			continue
		}
		kept = append(kept, e)
	}
	clear(q[len(kept):])
	s.queues[kind] = kept
}

func (s *spool) release(e *encoded) {
	s.bytes -= len(e.data)
	if e.writing {
		return // its bytes are still read
	}
	if len(s.free) < 8 {
		s.free = append(s.free, e.data)
	}
	e.data = nil
}

// next waits for the oldest batch of a kind and marks it in flight. What cannot be read back from the outbox is
// counted as lost.
func (s *spool) next(ctx context.Context, kind schema.Kind) (*encoded, error) {
	for {
		s.mu.Lock()
		e := s.head(kind)
		s.inFlight[kind] = e
		s.mu.Unlock()
		if e != nil && e.data == nil {
			if err := s.load(ctx, kind, e); err != nil {
				return nil, err
			}
			if e.data == nil {
				continue
			}
		}
		if e != nil {
			return e, nil
		}
		select {
		case <-s.wake[kind]:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// head is the oldest batch of a kind that may be sent, without data when it must be read from the outbox.
func (s *spool) head(kind schema.Kind) *encoded {
	q := s.queues[kind]
	if o := s.outbox; o != nil {
		if at, ok := o.head(kind); ok {
			if !o.comes(at.seg.run, at.seg.number) {
				return nil
			}
			if len(q) > 0 && q[0].mark == at {
				return q[0]
			}
			return &encoded{mark: at}
		}
		if !o.failing || !o.comes(o.run, o.next) {
			return nil
		}
	}
	if len(q) == 0 {
		return nil
	}
	return q[0]
}

// acked removes the batch that next gave.
func (s *spool) acked(kind schema.Kind) {
	told := s.tells(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.inFlight[kind]
	s.inFlight[kind] = nil
	if told > 0 {
		s.outbox.told(e, told)
	}
	stored, behind := e.mark.seg != nil, e.behind()
	if q := s.queues[kind]; len(q) > 0 && q[0] == e {
		q[0] = nil
		s.queues[kind] = q[1:]
		if stored {
			s.stored[kind]--
		}
		e.done = true
		s.release(e)
	}
	// What memory alone gave out before the disk came with earlier runs is behind them there, and comes again.
	if stored && e.mark == s.outbox.at[kind] {
		s.outbox.advance(kind, behind)
		s.turn(behind.seg)
	} else if e.from != nil {
		s.turn(e.from)
	}
}

// turn does what is due when a segment may have been the last of its run: who waits for the next one is woken.
func (s *spool) turn(seg *segment) {
	if seg.earlier {
		s.more() // its debt
		s.wakeAll()
	}
}

// refused counts a batch that will never be acked; acked removes it.
func (s *spool) refused(e *encoded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.refused = true
	s.dropped += uint64(e.events)
	s.batches++
}

// waiting is how many batches of the kind have not been acked yet.
func (s *spool) waiting(kind schema.Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.queues[kind])
	if s.outbox != nil {
		n += s.outbox.batches[kind] - s.stored[kind]
	}
	return n
}

// spoolLevel is what a spool holds and has given up.
type spoolLevel struct {
	batches, bytes          int // with an outbox, batches are also those there
	unstored                int // batches that memory alone holds
	droppedEvents, droppedN uint64
	oldest                  int64 // wall time at which the oldest batch was closed, ns; 0: none
	outbox                  outboxLevel
}

func (s *spool) level() spoolLevel {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := spoolLevel{bytes: s.bytes, droppedEvents: s.dropped, droppedN: s.batches}
	for kind, q := range s.queues {
		l.unstored += len(q) - s.stored[kind]
		e := s.inFlight[kind]
		if e == nil && len(q) > 0 {
			e = q[0]
		}
		if e != nil && e.at != 0 && (l.oldest == 0 || e.at < l.oldest) {
			l.oldest = e.at
		}
	}
	l.batches = l.unstored
	if s.outbox != nil {
		l.outbox = s.outbox.level()
		l.batches += l.outbox.batches
	}
	return l
}
