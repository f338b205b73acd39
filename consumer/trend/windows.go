package trend

import (
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Windows says which windows of a boot are closed, in which of them events of one kind were lost, and which batches of
// that kind have their events.
type Windows struct {
	Open uint64 // first window that is not closed
	Gaps Gaps
	Seq  uint64 // of the latest batch with events, of the latest run; 0: none

	known  schema.KTime // all that happened before was seen or is excluded
	losing bool         // events were lost after known, until a time that is not known yet
	newest uint64       // window of the latest batch
	first  [slots]uint64
}

// Observe takes the header of a batch of the latest run. Only batches of the kind have events that count. lost reports
// that the batch says that events were lost, restarted that it is the first of a new run.
func (w *Windows) Observe(width schema.KTime, h *schema.Header, kind schema.Kind, lost, restarted bool) {
	counts := h.Kind == kind && h.Events > 0
	if w.losing && counts {
		w.Gaps.Mark(width, w.known, h.First)
		w.losing = false
	}
	if restarted {
		w.Gaps.Mark(width, w.known, schema.KTime(h.Run))
		w.Seq = 0
	}
	if lost {
		w.Gaps.Mark(width, w.known, h.Last) // Last is 0 in a heartbeat
		w.losing = w.losing || !counts      // until the next tick
	}
	if counts {
		w.known = max(w.known, h.Last)
		w.number(uint64(h.Last/width), h.Seq)
	}
}

// number notes the batch that is the first one with events of the windows up to last.
func (w *Windows) number(last, seq uint64) {
	if w.Seq == 0 {
		w.newest = last
		for i := range w.first {
			w.first[i] = seq
		}
	}
	for i := max(w.newest+1, last-min(last, slots-1)); i <= last; i++ {
		w.first[i%slots] = seq
	}
	w.newest, w.Seq = max(w.newest, last), seq
}

// From returns the seq of the first batch that may have events of a window or of a later one. Only the batches of the
// last 64 windows of the latest run are known.
func (w *Windows) From(window uint64) uint64 {
	if window > w.newest {
		return w.Seq
	}
	return w.first[max(window, w.newest-min(w.newest, slots-1))%slots]
}

// Lose notes that events were lost after the latest batch, until a time that is not known yet.
func (w *Windows) Lose() { w.losing = true }

// Close closes the windows that end at through or before, and reports whether there is a new one.
func (w *Windows) Close(width, through schema.KTime) bool {
	if w.losing {
		w.Gaps.Mark(width, w.known, through)
		w.losing = false
	}
	w.known = max(w.known, through)
	open := uint64(through / width)
	if open <= w.Open {
		return false
	}
	w.Open = open
	return true
}

// Known returns the time up to which all was seen or is excluded.
func (w *Windows) Known() schema.KTime { return w.known }

// Reset begins again with windows of another length. What happened until the next batch is excluded.
func (w *Windows) Reset() {
	*w = Windows{known: w.known, losing: true}
}

// Code passes over the windows.
func (w *Windows) Code(c *snapshot.Codec) {
	snapshot.Uint(c, &w.Open, &w.Seq)
	snapshot.Uint(c, &w.known)
	w.Gaps.Code(c)
	c.Bool(&w.losing)
	snapshot.Uint(c, &w.newest)
	before := uint64(0)
	for i := range uint64(slots) { // the oldest window comes first, so that differences are small
		seq := &w.first[(w.newest+1+i)%slots]
		more := *seq - before
		snapshot.Uint(c, &more)
		*seq = before + more
		before = *seq
	}
}
