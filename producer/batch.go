package producer

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// grownEvents bounds a batch that grows while the one before is in flight.
const grownEvents = 32_768

// batcher holds the open batch of each kind and closes it at BatchEvents, BatchBytes or BatchAge.
// While one is in flight and another is ready it lets the next one grow, up to BatchMaxBytes, so the size
// of batches follows the round trip and the bus never waits for one. Only the reading goroutine uses it.
type batcher struct {
	limits batchLimits
	header schema.Header // what all batches share
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

// openBatch is one kind's batch under construction.
type openBatch struct {
	*schema.Builder
	generation uint64
	seq        uint64
	opened     schema.KTime // when its first event was added
	strings    int          // in it when its size was last looked at
}

func newBatcher(limits batchLimits, header schema.Header, s *spool, lost func() [schema.NumLosses]uint64) *batcher {
	b := &batcher{limits: limits, header: header, spool: s, lost: lost}
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		b.open[kind] = &openBatch{Builder: schema.NewBuilder(kind), generation: 1}
	}
	return b
}

// added is called after each event of a kind.
func (b *batcher) added(kind schema.Kind, now schema.KTime) {
	o := b.open[kind]
	n := o.Events()
	if n == 1 {
		o.opened = now
	}
	if n%512 == 0 || o.Strings() > o.strings+someStrings {
		b.closeIfFull(o)
		o.strings = o.Strings()
	}
}

// older has the open memory batch say who is still there.
func (b *batcher) older(pids []uint64, now schema.KTime) {
	o := b.open[schema.KindMemory]
	if o.Older = pids; o.Events() == 0 {
		o.opened = now
	}
}

// empty says that there is nothing to send.
func (o *openBatch) empty() bool { return o.Events() == 0 && o.Older == nil }

// someStrings are looked at before there are 512 events: names and paths are up to 4 KiB long.
const someStrings = 16 << 10

// full reports whether a batch has no room for large entries.
func (b *batcher) full(o *openBatch) bool { return o.Size() >= b.limits.maxBytes/2 }

func (b *batcher) closeIfFull(o *openBatch) {
	n, size := o.Events(), o.Size()
	if n >= grownEvents || size >= b.limits.maxBytes-b.limits.maxBytes/8 {
		b.close(o)
		return
	}
	if (n >= b.limits.events || size >= b.limits.bytes) && b.spool.waiting(o.Kind()) <= 1 { // one is in flight, this will be ready
		b.close(o)
	}
}

// grownAge bounds the age of a batch that grows, where there is an outbox: until it is closed a crash takes it.
const grownAge = schema.KTime(time.Second)

// closeDue closes the batches that are old enough and not waited for by an earlier one.
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

// closeAll closes whatever is open: at the end.
func (b *batcher) closeAll() {
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		if o := b.open[kind]; !o.empty() {
			b.close(o)
		}
	}
}

// heartbeat sends a host batch.
func (b *batcher) heartbeat(libraries []schema.Library, cards []card, known *processes, linux, version string) {
	o := b.open[schema.KindHost]
	o.Libraries, o.Linux, o.Producer = nil, linux, version
	for i := 0; i < len(libraries) && !b.full(o); i++ {
		o.Libraries = libraries[:i+1]
	}
	for i := range cards {
		o.GPU(cards[i].GPU)
	}
	o.Coverage = o.Coverage[:0]
	known.coverage(o.Builder, b.limits.maxBytes-b.limits.maxBytes/8)
	b.close(o)
}

func (b *batcher) close(o *openBatch) {
	o.seq++
	h := b.header
	h.Seq = o.seq
	h.Lost = b.lost()
	data := o.Encode(&h)
	b.spool.push(o.Kind(), data, encoded{seq: o.seq, events: o.Events(), lost: h.Lost[schema.LossSpool], last: o.Last(), at: time.Now().UnixNano()})
	o.Reset()
	o.generation++
}
