package outbox

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// reader reads the batches of one kind in another goroutine, since a disk may be silent. It starts no second read
// before the first one has ended, so a silent disk blocks one goroutine per kind.
type reader struct {
	buf     []byte
	pending chan answer
}

type answer struct {
	of   *Batch
	head head
	data []byte
	err  error
}

// read reads a batch, for up to ReadTimeout unless it is corrupt or gone.
func (o *Outbox) read(ctx context.Context, b *Batch, limit int64) (head, []byte, error) {
	r, over, last := &o.readers[b.Kind], time.After(o.opts.ReadTimeout), errSilent
	for {
		var again <-chan time.Time
		if r.pending == nil {
			r.pending = make(chan answer, 1)
			go func(buf []byte, to chan<- answer) { to <- b.read(limit, buf) }(r.buf, r.pending)
		}
		select {
		case a := <-r.pending:
			r.buf, r.pending = a.data, nil
			if a.of != b {
				continue
			}
			if a.err == nil || isFinal(a.err) {
				return a.head, a.data, a.err
			}
			last, again = a.err, time.After(o.opts.ReadTimeout/30)
			select {
			case <-again:
				continue
			case <-over:
			case <-ctx.Done():
			}
		case <-over:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return head{}, nil, ctx.Err()
		}
		return head{}, nil, last
	}
}

// isFinal reports whether a retry of a read is of no use.
func isFinal(err error) bool {
	return errors.Is(err, errCorrupt) || errors.Is(err, errCorruptBatch) || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, fs.ErrClosed)
}

// read opens the file for each batch: that is little beside the round trip to NATS that follows.
func (b *Batch) read(limit int64, buf []byte) answer {
	f, err := b.segment.root.Open(b.segment.name())
	if err != nil {
		return answer{of: b, data: buf, err: err}
	}
	defer f.Close()
	h, data, err := readRecord(f, b.at.Off, limit, buf)
	return answer{b, h, data, err}
}

// take fills a batch that was read. After an error it counts the loss: one batch if its head is good, else the rest of
// the segment.
func (o *Outbox) take(q *queue, b *Batch, h head, data []byte, err error) bool {
	o.mu.Lock()
	if q.inFlight != b {
		o.mu.Unlock()
		return false // its file is gone and counted
	}
	if err == nil {
		b.Data, b.Seq, b.Events, b.Lost, b.Last, b.Closed = data, h.Seq, int(h.Events), h.Lost, h.Last, h.Closed
		o.mu.Unlock()
		return true
	}
	q.inFlight = nil
	to := b.segment.end
	if errors.Is(err, errCorruptBatch) {
		to = b.at.after(int(h.Bytes), int(h.Events))
	} else {
		b.segment.sealed = true
	}
	batches, events := to.Batches-b.at.Batches, to.Events-b.at.Events
	o.opts.Lost.Add(events)
	o.corrupt++
	o.advance(q, to)
	o.mu.Unlock()
	o.opts.Log.Warn("batches in the outbox cannot be read; they are lost",
		"segment", b.segment.name(), "offset", b.at.Off, "batches", batches, "events", events, "err", err)
	o.opts.Changed()
	return false
}
