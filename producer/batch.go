package producer

import (
	"time"

	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/schema"
)

// grownEvents bounds a batch that grows while the one before is in flight.
const grownEvents = 32_768

// batcher holds the open batch of each kind. It alone closes batches: at BatchEvents, BatchBytes or BatchAge. While one
// batch is in flight and another is queued, the next one grows up to BatchMaxBytes, so the size of batches follows the
// round trip to NATS. Only the reading goroutine uses it.
type batcher struct {
	limits batchLimits
	header schema.Header // shared by all batches
	spool  *spool
	lost   func() [schema.NumLosses]uint64
	open   [schema.NumKinds]*openBatch
}

type batchLimits struct {
	events   int
	bytes    int
	maxBytes int
	age      time.Duration
}

// graphKey identifies the executable graphs that had one handle of one process, one after the other.
type graphKey struct {
	process *process.Process
	handle  uint64
}

// openBatch is one kind's batch under construction. Its generation changes when it is closed; indexes of its
// dictionaries are valid for one generation.
type openBatch struct {
	*schema.Builder
	generation uint64
	seq        uint64
	opened     schema.KTime // when its first event was added
	strings    int          // bytes of its strings at the last check of its size
	graphs     map[graphKey]bool
}

func newBatcher(limits batchLimits, header schema.Header, s *spool, lost func() [schema.NumLosses]uint64) *batcher {
	b := &batcher{limits: limits, header: header, spool: s, lost: lost}
	for kind := schema.KindMemory; kind <= schema.KindHost; kind++ {
		b.open[kind] = &openBatch{Builder: schema.NewBuilder(kind), generation: 1, graphs: map[graphKey]bool{}}
	}
	return b
}

// added notes an event that was added to the open batch of a kind, and closes the batch if it is full.
func (b *batcher) added(kind schema.Kind, now schema.KTime) {
	o := b.open[kind]
	n := o.Events()
	if n == 1 {
		o.opened = now
	}
	if n%512 == 0 || o.Strings() > o.strings+checkStrings {
		b.closeIfFull(o)
		o.strings = o.Strings()
	}
}

// setOlder adds the list of older processes that still run to the open memory batch.
func (b *batcher) setOlder(pids []uint64, now schema.KTime) {
	o := b.open[schema.KindMemory]
	if o.Older = pids; o.Events() == 0 {
		o.opened = now
	}
}

// empty reports whether there is nothing to send.
func (o *openBatch) empty() bool { return o.Events() == 0 && o.Older == nil }

// checkStrings is the growth of strings, in bytes, after which added checks the size of a batch even before 512 events:
// names and paths are up to 4 KiB long.
const checkStrings = 16 << 10

// full reports whether a batch has no room for large entries.
func (b *batcher) full(o *openBatch) bool { return o.Size() >= b.limits.maxBytes/2 }

// prepareGraph makes room in the open launch batch to describe a graph. It closes the batch if it is full, or describes
// another graph that had the same handle.
func (b *batcher) prepareGraph(key graphKey) {
	o := b.open[schema.KindLaunch]
	if b.full(o) || o.graphs[key] {
		b.close(o)
	}
	o.graphs[key] = true
}

func (b *batcher) closeIfFull(o *openBatch) {
	n, size := o.Events(), o.Size()
	if n >= grownEvents || size >= b.limits.maxBytes-b.limits.maxBytes/8 {
		b.close(o)
		return
	}
	if (n >= b.limits.events || size >= b.limits.bytes) && b.spool.waiting(o.Kind()) <= 1 {
		b.close(o) // at most one is in flight: this one is queued next
	}
}

// grownAge bounds the age of a growing batch when there is an outbox: a crash loses an open batch.
const grownAge = schema.KTime(time.Second)

// closeDue closes the batches that are old enough, unless an earlier one is still in flight.
func (b *batcher) closeDue(now schema.KTime) {
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		o := b.open[kind]
		if o.empty() || now < o.opened+schema.KTime(b.limits.age) {
			continue
		}
		if b.spool.waiting(kind) == 0 || b.spool.outbox != nil && now >= o.opened+grownAge {
			b.close(o)
		}
	}
}

// closeAll closes all open batches, at the end.
func (b *batcher) closeAll() {
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		if o := b.open[kind]; !o.empty() {
			b.close(o)
		}
	}
}

// heartbeat closes a host batch. Every record of a call that returned before through has been added.
func (b *batcher) heartbeat(
	libraries []schema.Library, known *process.Table, linux, version string, through schema.KTime,
) {
	o := b.open[schema.KindHost]
	o.Libraries, o.Linux, o.Producer = nil, linux, version
	b.setEnds(o, through)
	for i := 0; i < len(libraries) && !b.full(o); i++ {
		o.Libraries = libraries[:i+1]
	}
	for i := range known.Cards {
		o.GPU(known.Cards[i].GPU)
	}
	o.Coverage = o.Coverage[:0]
	known.AddCoverage(o.Builder, b.limits.maxBytes-b.limits.maxBytes/8)
	b.close(o)
}

// setEnds reports how far each kind is complete: up to its open batch if that has events, else up to the last closed
// one. Readers wait for that batch. If the spool lost it, an empty batch follows, so that they wait no longer.
func (b *batcher) setEnds(o *openBatch, through schema.KTime) {
	o.Ends = o.Ends[:0]
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		of := b.open[kind]
		end := schema.End{Kind: kind, Seq: of.seq, Through: through}
		switch {
		case of.Events() > 0:
			end.Seq++
		case b.spool.lostLast(kind, of.seq):
			b.close(of)
			end.Seq = of.seq
		}
		o.Ends = append(o.Ends, end)
	}
}

func (b *batcher) close(o *openBatch) {
	o.seq++
	h := b.header
	h.Seq = o.seq
	h.Lost = b.lost()
	b.spool.push(outbox.Batch{
		Kind: o.Kind(), Data: o.Encode(&h), Seq: o.seq, Events: o.Events(), Lost: h.Lost[schema.LossSpool],
		Last: o.Last(), Closed: time.Now().UnixNano(),
	})
	o.Reset()
	clear(o.graphs)
	o.generation++
}
