package source

import (
	"fmt"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Batches decodes the batches of CUDA calls in messages, those of the hosts of a range, each once. It counts what is
// missing between them.
type Batches struct {
	*Range
	decoder *schema.Decoder
	batch   schema.Batch

	read      map[batchOrder]*recording.Sequences // seqs
	lost      map[hostRun]losses
	last      map[int]uint64 // the highest sequence of a message of each shard
	late      uint64         // batches behind later ones of their shard: the blocks of the file changed places
	malformed uint64         // messages
	selected  bool           // a batch had a process of the range
}

// hostRun is a run of a producer.
type hostRun struct {
	cluster, host, boot string
	run                 uint64
}

// batchOrder is the batches that one sequence counts.
type batchOrder struct {
	hostRun
	kind schema.Kind
}

// losses are counters of lost events.
type losses struct{ first, last uint64 }

// NewBatches returns the Batches of a range.
func NewBatches(r *Range) *Batches {
	return &Batches{Range: r, decoder: schema.NewDecoder(), read: map[batchOrder]*recording.Sequences{},
		lost: map[hostRun]losses{}, last: map[int]uint64{}}
}

// Of returns the batch of a message, which is valid until the next call; nil: it is none of CUDA calls, not of the
// hosts, known already, or malformed.
func (r *Batches) Of(m *recording.Message) *schema.Batch {
	b := &r.batch
	if err := r.decoder.Decode(m.Data, b); err != nil {
		r.malformed++
		return nil
	}
	if b.Kind == schema.KindNone || b.Kind >= schema.KindHost || !r.OfHost(b.Cluster, b.Host) || !r.next(b) {
		return nil
	}
	if m.Sequence < r.last[m.Shard] {
		r.late++
	}
	r.last[m.Shard] = max(r.last[m.Shard], m.Sequence)
	return b
}

// Selects reports for each process of a batch whether the range has it.
func (r *Batches) Selects(b *schema.Batch) []bool {
	selects := make([]bool, len(b.Processes))
	for i := range b.Processes {
		selects[i] = r.SelectsRow(b, &b.Processes[i])
		r.selected = r.selected || selects[i]
	}
	return selects
}

// Selected reports whether Selects found a process of the range.
func (r *Batches) Selected() bool { return r.selected }

// next reports whether a batch is new. It notes what the producer lost.
func (r *Batches) next(b *schema.Batch) bool {
	run := hostRun{b.Cluster, b.Host, b.BootID, b.Run}
	order := batchOrder{run, b.Kind}
	read := r.read[order]
	if read == nil {
		read = &recording.Sequences{}
		r.read[order] = read
	}
	if !read.Add(b.Seq) {
		return false
	}
	lost, known := r.lost[run]
	if !known {
		lost.first = b.TotalLost()
	}
	lost.last = max(lost.last, b.TotalLost())
	r.lost[run] = lost
	return true
}

// Missing returns sentences about what was not read.
func (r *Batches) Missing() (texts []string) {
	gaps := uint64(0)
	for _, read := range r.read {
		gaps += read.Absent()
	}
	if gaps > 0 {
		texts = append(texts, app.Plural(gaps, "batch is", "batches are")+" missing")
	}
	if r.late > 0 {
		texts = append(texts, app.Plural(r.late, "batch comes", "batches come")+" behind later ones")
	}
	events := uint64(0)
	for _, l := range r.lost {
		events += l.last - min(l.first, l.last)
	}
	if events > 0 {
		texts = append(texts, app.Plural(events, "event was", "events were")+" lost by the producer")
	}
	if r.malformed > 0 {
		texts = append(texts, fmt.Sprintf("%d messages are malformed", r.malformed))
	}
	return texts
}
