package nsys

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Batches close as those of a producer.
const (
	batchEvents = 4096
	batchBytes  = 512 << 10 // so a batch never has as many frames as a message may have
	batchAge    = schema.KTime(time.Second)
	beatTime    = schema.KTime(10 * time.Second)
	checkEvents = 512      // between two looks at the size of a batch
	checkBytes  = 64 << 10 // of strings, likewise
)

// batches writes events as the messages of one shard of a bus.
type batches struct {
	to       *recording.Writer
	target   *target
	header   schema.Header
	open     [schema.NumKinds]*openBatch
	sequence uint64
	now      schema.KTime // of the last event
	due      schema.KTime // when the oldest open batch closes; 0: none is open
	beat     schema.KTime // when the next heartbeat is due
}

// openBatch is one batch under construction. The maps hold indices of its dictionaries.
type openBatch struct {
	*schema.Builder
	target  *target
	seq     uint64
	strings int // at the last check of the size
	threads map[uint64]uint32
	gpus    map[device]uint32
}

func newBatches(to *recording.Writer, t *target, h schema.Header) *batches {
	b := &batches{to: to, target: t, header: h}
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindHost} {
		b.open[kind] = &openBatch{
			Builder: schema.NewBuilder(kind), target: t, threads: map[uint64]uint32{}, gpus: map[device]uint32{},
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.cards)) {
		card := t.cards[id]
		card.Ordinal = uint32(id)
		b.open[schema.KindHost].GPU(card)
	}
	return b
}

// begin writes the beginning of the recording. No memory is live before the first event.
func (b *batches) begin(kinds []schema.Kind) error {
	s := recording.Stream{Name: "nsight", Created: b.target.session, State: recording.KnowledgeComplete}
	if len(kinds) > 0 && !slices.Contains(kinds, schema.KindMemory) {
		s.State = recording.KnowledgeNone
	}
	if err := b.to.AddStreams(recording.Selection{Kinds: kinds}, []recording.Stream{s}); err != nil {
		return err
	}
	return b.heartbeat(0)
}

// end writes what is left.
func (b *batches) end() error {
	if err := b.closeAll(); err != nil {
		return err
	}
	return b.heartbeat(b.now + 1)
}

// added notes an event that was added to the open batch of a kind.
func (b *batches) added(kind schema.Kind, at schema.KTime) error {
	b.now = at
	if at >= b.beat || b.due != 0 && at >= b.due {
		if err := b.closeAll(); err != nil {
			return err
		}
		if at < b.beat {
			return nil
		}
		return b.heartbeat(at)
	}
	o := b.open[kind]
	if b.due == 0 {
		b.due = at + batchAge
	}
	if o.full() {
		return b.close(o)
	}
	return nil
}

// full reports whether the batch must be closed.
func (o *openBatch) full() bool {
	if o.Events() >= batchEvents {
		return true
	}
	if o.Events()%checkEvents != 0 && o.Strings() < o.strings+checkBytes {
		return false
	}
	o.strings = o.Strings()
	return o.Size() >= batchBytes
}

func (b *batches) closeAll() error {
	b.due = 0
	for _, o := range b.open {
		if o != nil && o.Events() > 0 {
			if err := b.close(o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *batches) close(o *openBatch) error {
	err := b.write(o, b.now)
	o.Reset()
	o.strings = 0
	clear(o.threads)
	clear(o.gpus)
	return err
}

// heartbeat writes the GPUs, and that all events before a time are written.
func (b *batches) heartbeat(through schema.KTime) error {
	o := b.open[schema.KindHost]
	o.Producer = "nsight"
	if b.target.schema != "" {
		o.Producer += " " + b.target.schema
	}
	o.Ends = o.Ends[:0]
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy} {
		o.Ends = append(o.Ends, schema.End{Kind: kind, Seq: b.open[kind].seq, Through: through})
	}
	b.beat = through + beatTime
	return b.write(o, through)
}

// write writes a batch as the next message. Its time is that of the event that closed the batch.
func (b *batches) write(o *openBatch, at schema.KTime) error {
	o.seq++
	b.sequence++
	h := b.header
	h.Seq = o.seq
	err := b.to.Append(&recording.Message{
		Sequence: b.sequence, Stored: h.Wall(at), Subject: schema.Subject(0, h.Cluster, h.Host, o.Kind()),
		Data: o.Encode(&h),
	})
	if err != nil {
		return fmt.Errorf("write the recording: %w", err)
	}
	return nil
}

// thread interns the thread of a global id. A global id of a process has the thread id 0.
func (o *openBatch) thread(global uint64) uint32 {
	if i, known := o.threads[global]; known {
		return i
	}
	pid := pidOf(global)
	p, known := o.target.processes[pid]
	if !known {
		p.PID = pid
	}
	i := o.Thread(schema.Thread{Process: o.Process(p), TID: tidOf(global), Comm: o.target.threads[global]})
	o.threads[global] = i
	return i
}

// gpu interns a device of a process; 0 if the value names none.
func (o *openBatch) gpu(pid uint32, v any) uint32 {
	ordinal, ok := number(v)
	if !ok || ordinal >= mostRows {
		return 0
	}
	at := device{pid, uint32(ordinal)}
	if i, known := o.gpus[at]; known {
		return i
	}
	i := o.GPU(o.target.gpu(pid, at.ordinal))
	o.gpus[at] = i
	return i
}
