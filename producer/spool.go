package producer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

// encoded is one batch on its way to NATS.
type encoded struct {
	outbox.Batch

	// Guarded by the spool's mu.
	stored   *outbox.Batch // as the outbox knows it; nil: it does not have the batch
	storing  bool          // the outbox reads its data
	acked    bool
	rejected bool // NATS will never store it
}

// spool is a bounded queue in memory, in order per kind. A batch that does not fit pushes out the oldest batches of the
// least precious kind (outbox.DropOrder), never one in flight; it is dropped itself when all others are more precious.
//
// If there is an outbox, it takes a batch over from the spool and keeps it until NATS has acked it. While the disk
// cannot be written, the spool keeps its batches, and publishes them when the outbox is empty.
//
// All methods are safe for concurrent use. Only the publisher of a kind calls next and acked for it.
type spool struct {
	limit  int
	outbox *outbox.Outbox // nil: memory only
	lost   *atomic.Uint64 // events lost here and in the outbox

	mu       sync.Mutex
	bytes    int
	queues   [schema.NumKinds][]*encoded
	inFlight [schema.NumKinds]*encoded // the first of its queue, or stored in the outbox
	latest   [schema.NumKinds]uint64   // seq of the latest acked batch of this run
	free     [][]byte                  // buffers of batches that are done with
	wake     [schema.NumKinds]chan struct{}
	unstored chan struct{} // wakes store
	idle     chan struct{} // a publisher has nothing to publish

	closeTimeout time.Duration // a disk that needs longer does not hold up the end
}

func newSpool(limit int) *spool {
	s := &spool{
		limit: limit, lost: new(atomic.Uint64), closeTimeout: 30 * time.Second,
		unstored: make(chan struct{}, 1), idle: make(chan struct{}, 1),
	}
	for i := range s.wake {
		s.wake[i] = make(chan struct{}, 1)
	}
	return s
}

func morePrecious(a, b schema.Kind) bool {
	return slices.Index(outbox.DropOrder, a) > slices.Index(outbox.DropOrder, b)
}

// push copies a batch in. It never blocks: it makes room, or counts the batch as lost.
func (s *spool) push(b outbox.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes+len(b.Data) > s.limit {
		victim, i := s.leastPrecious()
		if i < 0 {
			break // all are in flight
		}
		if morePrecious(victim, b.Kind) {
			s.count(&b)
			return
		}
		s.count(&s.queues[victim][i].Batch)
		s.take(victim, i)
	}
	var buffer []byte
	if n := len(s.free); n > 0 {
		buffer, s.free = s.free[n-1][:0], s.free[:n-1]
	}
	b.Data = append(buffer, b.Data...)
	s.bytes += len(b.Data)
	s.queues[b.Kind] = append(s.queues[b.Kind], &encoded{Batch: b})
	signal(s.unstored)
	signal(s.wake[b.Kind])
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed wakes all publishers and store: the outbox may have another answer for them.
func (s *spool) changed() {
	for _, c := range s.wake {
		signal(c)
	}
	signal(s.unstored)
}

// leastPrecious finds the batch to drop: the oldest of its kind that is neither in flight nor being stored.
func (s *spool) leastPrecious() (kind schema.Kind, i int) {
	for _, kind := range outbox.DropOrder {
		for i, e := range s.queues[kind] {
			if e != s.inFlight[kind] && !e.storing {
				return kind, i
			}
		}
	}
	return schema.KindNone, -1
}

func (s *spool) count(b *outbox.Batch) { s.lost.Add(uint64(b.Events)) }

// take removes a batch from its queue. Its buffer is used again, unless somebody still reads it.
func (s *spool) take(kind schema.Kind, i int) {
	e := s.queues[kind][i]
	s.queues[kind] = slices.Delete(s.queues[kind], i, i+1)
	s.bytes -= len(e.Data)
	if e != s.inFlight[kind] && !e.storing && len(s.free) < 8 {
		s.free = append(s.free, e.Data)
		e.Data = nil
	}
}

// next waits for the oldest batch of a kind and marks it in flight.
func (s *spool) next(ctx context.Context, kind schema.Kind) (*encoded, error) {
	for {
		if e, err := s.head(ctx, kind); e != nil || err != nil {
			return e, err
		}
		signal(s.idle)
		select {
		case <-s.wake[kind]:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// head returns what next waits for, nil if there is nothing.
func (s *spool) head(ctx context.Context, kind schema.Kind) (*encoded, error) {
	if s.outbox != nil {
		b, err := s.outbox.Next(ctx, kind)
		if err != nil {
			return nil, err
		}
		if b != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.inFlight[kind] = &encoded{Batch: *b, stored: b}
			return s.inFlight[kind], nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[kind]
	if len(q) == 0 || s.outbox != nil && !s.outbox.Stats().Bypass[kind] {
		return nil, nil
	}
	s.inFlight[kind] = q[0]
	return q[0], nil
}

// acked removes the batch that next returned.
func (s *spool) acked(kind schema.Kind) {
	s.mu.Lock()
	e := s.inFlight[kind]
	s.inFlight[kind] = nil
	e.acked = true
	if !e.rejected && !e.Earlier {
		s.latest[kind] = e.Seq
	}
	b := e.stored
	if b == nil {
		b = &outbox.Batch{Kind: kind, Lost: e.Lost}
		s.take(kind, 0)
	}
	s.mu.Unlock()
	if s.outbox != nil {
		s.outbox.Ack(b)
		signal(s.unstored)
	}
}

// reject counts the batch in flight as lost, since NATS will never store it; acked removes it.
func (s *spool) reject(e *encoded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(&e.Batch)
	e.rejected = true
	e.Lost = 0 // no reader gets its report of losses
	if e.stored != nil {
		e.stored.Lost = 0
	}
}

// waiting is how many batches of the kind are not acked.
func (s *spool) waiting(kind schema.Kind) int {
	s.mu.Lock()
	n := len(s.queues[kind])
	s.mu.Unlock()
	if s.outbox != nil {
		n += s.outbox.Stats().Waiting[kind]
	}
	return n
}

// lostLast reports whether the batch seq of a kind, the last one of this run, was lost: no batch of the kind is left,
// and another was acked last.
func (s *spool) lostLast(kind schema.Kind, seq uint64) bool {
	if s.waiting(kind) > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest[kind] < seq
}

// spoolLevel has the gauges and counters of a spool and its outbox.
type spoolLevel struct {
	batches, bytes int // batches includes those of the outbox, bytes does not
	unstored       int // batches in memory only
	droppedEvents  uint64
	oldest         int64 // wall time at which the oldest batch was closed, ns; 0: none
	outbox         outbox.Stats
}

func (s *spool) level() spoolLevel {
	s.mu.Lock()
	l := spoolLevel{bytes: s.bytes, droppedEvents: s.lost.Load()}
	for kind, q := range s.queues {
		l.unstored += len(q)
		e := s.inFlight[kind]
		if e == nil && len(q) > 0 {
			e = q[0]
		}
		if e != nil && e.Closed != 0 && (l.oldest == 0 || e.Closed < l.oldest) {
			l.oldest = e.Closed
		}
	}
	s.mu.Unlock()
	l.batches = l.unstored
	if s.outbox != nil {
		l.outbox = s.outbox.Stats()
		l.batches += l.outbox.Batches
	}
	return l
}
