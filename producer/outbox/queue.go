package outbox

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// DropOrder lists the kinds from the least precious, which is dropped first, to the most precious.
var DropOrder = []schema.Kind{schema.KindLaunch, schema.KindSync, schema.KindCopy, schema.KindHost, schema.KindMemory}

// queue holds the batches of one kind that are not acked. The outbox's mu guards it.
type queue struct {
	segments []*segment // oldest first; the last may be open
	acked    position   // in the first segment; all before it is acked or lost
	batches  int        // not acked
	inFlight *Batch
}

// run keeps the loss counters of the present run, or of an earlier run with batches in the outbox.
type run struct {
	losses
	segments int
}

// losses of one run. JSON fields of the state file.
type losses struct {
	Lost     uint64 // the greatest Lost of its batches in the outbox
	Reported uint64 // the greatest Lost of its acked batches
}

func (l losses) unreported() uint64 { return l.Lost - min(l.Lost, l.Reported) }

// add appends a segment to its queue.
func (o *Outbox) add(s *segment) {
	q := &o.queues[s.kind]
	if len(q.segments) == 0 {
		q.acked = s.begin
	}
	q.segments = append(q.segments, s)
	q.batches += s.end.Batches
	o.bytes += s.diskBytes()
	if o.runs[s.run] == nil {
		o.runs[s.run] = &run{}
	}
	r := o.runs[s.run]
	r.segments, r.Lost = r.segments+1, max(r.Lost, s.lost)
}

// resize sets the end and the size of a segment.
func (o *Outbox) resize(s *segment, end position, size int64) {
	o.bytes -= s.diskBytes()
	s.end, s.size = end, size
	o.bytes += s.diskBytes()
}

// precedes reports whether batches wait that come before those of a run: earlier runs have smaller numbers.
func (o *Outbox) precedes(run string, number uint64) bool {
	return slices.ContainsFunc(o.queues[:], func(q queue) bool {
		return q.batches > 0 && q.segments[0].run != run && q.segments[0].number < number
	})
}

// left is how much of a segment is not acked.
func (q *queue) left(i int) (batches int, events uint64) {
	end := q.segments[i].end
	if i > 0 {
		return end.Batches, end.Events
	}
	return end.Batches - q.acked.Batches, end.Events - q.acked.Events
}

// advance says that all before p in the first segment is acked or lost.
func (o *Outbox) advance(q *queue, p position) {
	q.batches -= p.Batches - q.acked.Batches
	q.acked = p
	if s := q.segments[0]; s.sealed && p.Off >= s.end.Off {
		o.remove(q, 0)
	}
}

// remove takes a segment out; sweep deletes its file. With the last segment of an earlier run, the losses that no acked
// batch of that run reported become losses of this run.
func (o *Outbox) remove(q *queue, i int) {
	s := q.segments[i]
	batches, _ := q.left(i)
	q.batches -= batches
	if q.segments = slices.Delete(q.segments, i, i+1); i == 0 && len(q.segments) > 0 {
		q.acked = q.segments[0].begin
	}
	o.bytes -= s.diskBytes()
	s.sealed = true
	o.trash = append(o.trash, s)
	r := o.runs[s.run]
	if r.segments--; r.segments == 0 && s.run != o.opts.Run {
		o.opts.Lost.Add(r.unreported())
		delete(o.runs, s.run)
	}
}

// lose removes a segment and counts its batches as lost, except acked ones and one in flight.
func (o *Outbox) lose(q *queue, i int) (batches int) {
	batches, events := q.left(i)
	if b := q.inFlight; b != nil && b.segment == q.segments[i] {
		if b.Data != nil {
			batches, events = batches-1, events-uint64(b.Events)
			o.runs[b.segment.run].Reported = max(o.runs[b.segment.run].Reported, b.Lost)
		} else {
			q.inFlight = nil // it is being read
		}
	}
	o.opts.Lost.Add(events)
	o.remove(q, i)
	return batches
}

// evict drops the oldest segment without a batch in flight of the least precious kind that has one. Kinds more precious
// than most stay.
func (o *Outbox) evict(most schema.Kind) bool {
	for _, kind := range DropOrder[:slices.Index(DropOrder, most)+1] {
		q := &o.queues[kind]
		i := slices.IndexFunc(q.segments, func(s *segment) bool { return q.inFlight == nil || q.inFlight.segment != s })
		if i >= 0 {
			o.dropped += uint64(o.lose(q, i))
			return true
		}
	}
	return false
}
