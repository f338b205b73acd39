package producer

import (
	"context"
	"slices"
	"time"

	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

// store moves batches into the outbox until ctx ends, then those that are left, and closes the outbox. It returns
// without that when the disk needs more than closeTimeout.
func (s *spool) store(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for s.storeRound() {
			}
			select {
			case <-s.unstored:
			case <-ctx.Done():
			}
		}
		s.storeRest()
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(s.closeTimeout):
	}
}

// storeRest ends the run: what cannot be stored is lost.
func (s *spool) storeRest() {
	for s.storeRound() {
	}
	s.mu.Lock()
	for _, q := range s.queues {
		for _, e := range q {
			s.count(&e.Batch)
		}
	}
	s.mu.Unlock()
	s.outbox.Close()
}

// storeRound stores the oldest batch of each kind, the most precious first. It reports whether another round is of use.
func (s *spool) storeRound() (again bool) {
	for _, kind := range slices.Backward(outbox.DropOrder) {
		if e, b, inFlight := s.claim(kind); e != nil {
			again = s.release(kind, e, b, s.outbox.Append(b, inFlight)) || again
		}
	}
	return again
}

// claim returns the oldest batch of a kind; its data stays valid until release.
func (s *spool) claim(kind schema.Kind) (e *encoded, b *outbox.Batch, inFlight bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queues[kind]) == 0 {
		return nil, nil, false
	}
	e = s.queues[kind][0]
	e.storing = true
	return e, new(e.Batch), e == s.inFlight[kind]
}

// release gives a batch to the outbox if that has taken it. It reports whether the next batch can be tried.
func (s *spool) release(kind schema.Kind, e *encoded, b *outbox.Batch, err error) (again bool) {
	s.mu.Lock()
	e.storing = false
	if i := slices.Index(s.queues[kind], e); err == nil && i >= 0 { // else it was acked meanwhile
		e.stored = b
		s.take(kind, i)
	}
	s.mu.Unlock()
	if err == nil && e.acked {
		s.outbox.Ack(b)
	}
	signal(s.wake[kind])
	return err == nil
}

// urgent is the most precious kind of batches that take half of the memory.
func (s *spool) urgent() (kind schema.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes <= s.limit/2 {
		return schema.KindNone
	}
	for _, k := range outbox.DropOrder {
		if len(s.queues[k]) > 0 {
			kind = k
		}
	}
	return kind
}
