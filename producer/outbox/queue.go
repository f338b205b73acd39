package outbox

import (
	"math"
	"os"

	"github.com/gputap/gputap/producer/outbox/segment"
	"github.com/gputap/gputap/schema"
)

// DropOrder lists the kinds from the least precious, which is dropped first, to the most precious.
var DropOrder = []schema.Kind{
	schema.KindLaunch, schema.KindSync, schema.KindCopy, schema.KindTensor, schema.KindHost, schema.KindMemory,
}

// file is a segment. The outbox's mu guards end, bytes and open.
type file struct {
	segment.Name
	end   segment.Position // end.Off is not known in a segment of an earlier run
	bytes int64
	open  bool // batches are appended

	handle *os.File // only the holder of writing uses it and synced
	synced int64    // bytes that survive a power cut
}

// queue is the log of a kind from its oldest batch that is not acked. Each file ends with the counts with which the
// next one begins: batches of missing files belong to the file before them.
type queue struct {
	files    []*file          // oldest first
	acked    segment.Position // all before it is acked or lost; in the first file; without files, the end
	inFlight *Batch           // also while it is being read; its file may have been dropped
}

func (q *queue) end() segment.Position {
	if n := len(q.files); n > 0 {
		return q.files[n-1].end
	}
	return q.acked
}

// left is how much of the log up to p is not acked.
func (q *queue) left(p segment.Position) (batches int, events uint64) {
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
			run = min(run, q.files[0].Run())
		}
		if b := q.inFlight; b != nil && b.file != nil {
			run = min(run, b.file.Run())
		}
	}
	return run
}

func (o *Outbox) bytes() (bytes int64) {
	for i := range o.queues {
		for _, f := range o.queues[i].files {
			bytes += (f.bytes + segment.BlockBytes - 1) / segment.BlockBytes * segment.BlockBytes
		}
	}
	return bytes
}

// advance says that all before p is acked or lost.
func (o *Outbox) advance(q *queue, p segment.Position) {
	q.acked = p
	for len(q.files) > 0 && !q.files[0].open && p.Batches >= q.files[0].end.Batches {
		o.trash = append(o.trash, q.files[0])
		q.files = q.files[1:]
	}
	if len(q.files) > 0 && q.files[0].Number != p.Segment {
		q.acked = q.files[0].Begin
	}
}

// lose removes the oldest file and counts its batches as lost, except acked ones and one in flight.
func (o *Outbox) lose(q *queue) (batches int, events uint64) {
	f := q.files[0]
	batches, events = q.left(f.end)
	if b := q.inFlight; b != nil && b.file == f {
		if b.Data == nil {
			q.inFlight = nil // it is being read
		} else {
			batches, events = batches-1, events-uint64(b.Events)
			o.report(b)
		}
	}
	o.opts.Lost.Add(events)
	f.open = false
	o.advance(q, f.end)
	return batches, events
}

// evict drops the oldest file of the least precious kind that has one, among the first kinds of DropOrder.
func (o *Outbox) evict(kinds int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, kind := range DropOrder[:max(kinds, 0)] {
		if q := &o.queues[kind]; len(q.files) > 0 {
			batches, _ := o.lose(q)
			o.dropped += uint64(batches)
			return true
		}
	}
	return false
}

// makeRoom reports whether so many bytes fit, after dropping what evict may drop.
func (o *Outbox) makeRoom(kinds int, bytes int64) bool {
	for o.Stats().Bytes+bytes > o.opts.MaxBytes {
		if !o.evict(kinds) {
			return false
		}
	}
	return true
}

// report notes the losses that readers know from an acked batch. Runs are acked one after the other.
func (o *Outbox) report(b *Batch) {
	run := o.run
	if b.file != nil {
		run = b.file.Run()
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
