package producer

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/gputap/gputap/schema"
)

const readAgain = time.Second

// patience is how long a disk may not answer before what it holds is given up, segment for segment: batches behind it wait.
var patience = 30 * time.Second // tests have less

// load reads a batch that is in flight from the outbox. When that is impossible it counts what is lost, goes
// behind it, and leaves the batch without data. It fails only with ctx.
func (s *spool) load(ctx context.Context, kind schema.Kind, e *encoded) error {
	s.mu.Lock()
	limit := e.mark.seg.end.off
	s.mu.Unlock()
	for began := time.Now(); ; {
		h, data, err := s.ask(ctx, kind, e.mark, limit, max(patience-time.Since(began), 0))
		if err == nil {
			s.loaded(kind, e, &h, data)
			return nil
		}
		if ctx.Err() != nil && errors.Is(err, errHangs) {
			return ctx.Err()
		}
		hopeless := errors.Is(err, errDamaged) || errors.Is(err, errDamagedBatch) || errors.Is(err, fs.ErrNotExist) ||
			errors.Is(err, fs.ErrClosed) // its directory is gone
		if hopeless || time.Since(began) >= patience {
			s.unreadable(kind, e, &h, err)
			return nil
		}
		select {
		case <-time.After(readAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reading is how a kind's batches are read from the outbox.
type reading struct {
	buf   []byte
	asked chan answer // nil: the disk has answered all; else it is asked nothing more, so that what hangs is one goroutine
}

// answer is what the disk has where it was asked.
type answer struct {
	at mark
	recordHead
	data []byte
	err  error
}

// ask reads one record. A disk that does not answer for so long, or for hang once ctx has ended, is left behind.
func (s *spool) ask(ctx context.Context, kind schema.Kind, at mark, limit int64, wait time.Duration) (h recordHead, data []byte, err error) {
	r := &s.read[kind]
	over, atEnd := time.NewTimer(wait), min(wait, hang)
	defer over.Stop()
	defer context.AfterFunc(ctx, func() { over.Reset(atEnd) })()
	for {
		if r.asked == nil {
			r.ask(at, limit)
		}
		select {
		case a := <-r.asked:
			r.buf, r.asked = a.data, nil
			if a.at == at {
				return a.recordHead, a.data, a.err
			}
		case <-over.C:
			return h, nil, errHangs
		}
	}
}

func (r *reading) ask(at mark, limit int64) {
	buf, asked := r.buf, make(chan answer, 1)
	r.buf, r.asked = nil, asked
	go func() {
		h, data, err := at.read(limit, buf)
		asked <- answer{at, h, data, err}
	}()
}

// read reads one record. A file is opened for each: that is little beside the round trip that follows.
func (p mark) read(limit int64, buf []byte) (h recordHead, data []byte, err error) {
	f, err := p.seg.root.Open(p.seg.name)
	if err != nil {
		return h, buf, err
	}
	defer f.Close()
	return readRecord(f, p.off, limit, buf)
}

func (s *spool) loaded(kind schema.Kind, e *encoded, h *recordHead, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e != s.inFlight[kind] {
		return // it was counted as lost
	}
	e.data, e.seq, e.events, e.at = data, h.seq, int(h.events), h.at
	if seg := e.mark.seg; seg.earlier {
		e.from = seg
	} else {
		e.last = h.last
	}
}

// unreadable goes behind a record that cannot be read: to the next one when its head is good, else to the next that
// memory has, else to the end of the segment.
func (s *spool) unreadable(kind schema.Kind, e *encoded, h *recordHead, err error) {
	batches, events := s.pass(kind, e, h, errors.Is(err, errDamagedBatch))
	if batches == 0 {
		return
	}
	s.outbox.log.Warn("batches in the outbox cannot be read back: they are lost", "path", e.mark.seg.path(), "offset", e.mark.off,
		"batches", batches, "events", events, "err", err)
}

func (s *spool) pass(kind schema.Kind, e *encoded, h *recordHead, headIsGood bool) (batches, events uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e != s.inFlight[kind] {
		return 0, 0 // it was counted as lost
	}
	to := e.mark.seg.end
	switch q := s.queues[kind]; {
	case headIsGood:
		to = e.mark.behind(int(h.bytes), int(h.events))
	case len(q) > 0 && q[0].mark.seg == e.mark.seg && q[0].mark.off > e.mark.off:
		to = q[0].mark
	}
	batches, events = uint64(to.batches-e.mark.batches), to.events-e.mark.events
	s.batches += batches
	s.dropped += events
	s.inFlight[kind] = nil
	s.outbox.damaged++
	s.outbox.advance(kind, to)
	s.turn(e.mark.seg)
	return batches, events
}
