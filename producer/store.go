package producer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

// store moves batches into the outbox until ctx ends, then those that are left, and closes the outbox. It returns
// without that when the disk is silent for closeTimeout.
func (s *spool) store(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.storeUntil(ctx)
		s.storeRest()
	}()
	<-ctx.Done()
	look := time.NewTicker(s.closeTimeout / 10)
	defer look.Stop()
	for s.outbox.Stats().Silent < s.closeTimeout {
		select {
		case <-ended:
			return
		case <-look.C:
		}
	}
}

// storeUntil is the only one to wait for the disk.
func (s *spool) storeUntil(ctx context.Context) {
	tick := time.NewTicker(s.syncInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.unstored:
		case <-tick.C:
			s.outbox.Sync(s.urgent())
		case <-ctx.Done():
			return
		}
		for s.storeRound() {
			select {
			case <-tick.C:
				s.outbox.Sync(s.urgent())
			default:
			}
		}
	}
}

// storeRest ends the run: what cannot be stored is lost.
func (s *spool) storeRest() {
	s.outbox.Sync(s.urgent()) // a disk that failed may work again
	for s.storeRound() {
	}
	s.mu.Lock()
	for _, q := range s.queues {
		for _, e := range q {
			s.lost.Add(uint64(e.events))
		}
	}
	s.mu.Unlock()
	s.outbox.Close()
}

// storeRound stores the oldest batch of each kind, the most precious first. It reports whether another round is of use.
func (s *spool) storeRound() (again bool) {
	for _, kind := range slices.Backward(outbox.DropOrder) {
		e, b, inFlight := s.claim(kind)
		if e == nil {
			continue
		}
		err := s.outbox.Append(b, inFlight)
		again = s.release(kind, e, b, err) || again
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
	b = &outbox.Batch{Kind: kind, Data: e.data, Seq: e.seq, Events: e.events, Lost: e.lost, Last: e.last, Closed: e.at}
	return e, b, e == s.inFlight[kind]
}

// release gives a batch to the outbox if that has stored it. It reports whether the next batch can be tried.
func (s *spool) release(kind schema.Kind, e *encoded, b *outbox.Batch, err error) (again bool) {
	s.mu.Lock()
	e.storing = false
	again = err == nil
	switch i := slices.Index(s.queues[kind], e); {
	case i < 0: // acked meanwhile
	case err == nil:
		e.stored = b
		s.take(kind, i)
	case errors.Is(err, outbox.ErrFull) && e != s.inFlight[kind]: // else memory keeps it until it is acked
		s.count(e)
		s.full++
		s.take(kind, i)
		again = true
	}
	s.mu.Unlock()
	if err == nil && e.acked {
		s.outbox.Ack(b)
	}
	signal(s.wake[kind])
	return again
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
