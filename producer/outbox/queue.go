package outbox

import (
	"math"
	"slices"

	"github.com/gputap/gputap/schema"
)

// DropOrder lists the kinds from the least precious, which is dropped first, to the most precious.
var DropOrder = []schema.Kind{schema.KindLaunch, schema.KindSync, schema.KindCopy, schema.KindHost, schema.KindMemory}

// queue is the log of a kind from its oldest batch that is not acked. Each segment ends with the counts with which the
// next one begins: batches of missing files belong to the segment before them.
type queue struct {
	segments []*segment // oldest first
	acked    position   // all before it is acked or lost; in the first segment, or at the end if there is none
	inFlight *Batch     // also while it is being read; its segment may have been dropped
}

func (q *queue) end() position {
	if n := len(q.segments); n > 0 {
		return q.segments[n-1].end
	}
	return q.acked
}

// left is how much of the log up to p is not acked.
func (q *queue) left(p position) (batches int, events uint64) {
	return int(p.Batches - min(p.Batches, q.acked.Batches)), p.Events - min(p.Events, q.acked.Events)
}

func (q *queue) waiting() int {
	batches, _ := q.left(q.end())
	return batches
}

// oldestRun is that of the oldest batch that is not acked.
func (o *Outbox) oldestRun() uint64 {
	run := uint64(math.MaxUint64)
	for i := range o.queues {
		q := &o.queues[i]
		if q.waiting() > 0 {
			run = min(run, q.segments[0].run())
		}
		if b := q.inFlight; b != nil && b.segment != nil {
			run = min(run, b.segment.run())
		}
	}
	return run
}

const blockBytes = 4 << 10 // least room that a file takes

func (o *Outbox) bytes() (bytes int64) {
	for i := range o.queues {
		for _, s := range o.queues[i].segments {
			bytes += (s.bytes + blockBytes - 1) / blockBytes * blockBytes
		}
	}
	return bytes
}

// advance says that all before p is acked or lost.
func (o *Outbox) advance(q *queue, p position) {
	q.acked = p
	for len(q.segments) > 0 && !q.segments[0].open && p.Batches >= q.segments[0].end.Batches {
		o.trash = append(o.trash, q.segments[0])
		q.segments = q.segments[1:]
	}
	if len(q.segments) > 0 && q.segments[0].number != p.Segment {
		q.acked = q.segments[0].begin
	}
}

// lose removes the oldest segment and counts its batches as lost, except acked ones and one in flight.
func (o *Outbox) lose(q *queue) (batches int, events uint64) {
	s := q.segments[0]
	batches, events = q.left(s.end)
	if b := q.inFlight; b != nil && b.segment == s {
		if b.Data == nil {
			q.inFlight = nil // it is being read
		} else {
			batches, events = batches-1, events-uint64(b.Events)
			o.report(b)
		}
	}
	o.opts.Lost.Add(events)
	s.open = false
	o.advance(q, s.end)
	return batches, events
}

// evict drops the oldest segment of the least precious kind that has one, among the first kinds of DropOrder.
func (o *Outbox) evict(kinds int) bool {
	for _, kind := range DropOrder[:max(kinds, 0)] {
		if q := &o.queues[kind]; len(q.segments) > 0 {
			batches, _ := o.lose(q)
			o.dropped += uint64(batches)
			return true
		}
	}
	return false
}

// makeRoom reports whether so many bytes fit, after dropping what is less precious than the kind, or older.
func (o *Outbox) makeRoom(kind schema.Kind, bytes int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.bytes()+bytes+2*blockBytes > o.opts.MaxBytes {
		if !o.evict(slices.Index(DropOrder, kind) + 1) {
			return false
		}
	}
	return true
}

// report notes the losses that readers know from an acked batch. Runs are acked one after the other.
func (o *Outbox) report(b *Batch) {
	run := o.run
	if b.segment != nil {
		run = b.segment.run()
	}
	if run > o.reporting {
		o.reporting, o.reported = run, 0
	}
	if run < o.reporting || b.Lost <= o.reported {
		return
	}
	if run < o.run {
		o.unreported -= min(o.unreported, b.Lost-o.reported)
	}
	o.reported = b.Lost
}
