package export

import (
	"fmt"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// reader gives the selected events of messages to a sink, those of each batch once.
type reader struct {
	*source.Range
	decoder *schema.Decoder
	batch   schema.Batch
	to      sink

	last      map[batchOrder]uint64 // seq
	lost      map[hostRun]losses
	gaps      uint64 // missing batches
	malformed uint64 // messages
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

func (r *reader) read(m *recording.Message) error {
	b := &r.batch
	if err := r.decoder.Decode(m.Data, b); err != nil {
		r.malformed++
		return nil
	}
	if b.Kind == schema.KindNone || b.Kind >= schema.KindHost || !r.OfHost(b.Cluster, b.Host) || !r.next(b) {
		return nil
	}
	selects := make([]bool, len(b.Processes))
	for i := range b.Processes {
		selects[i] = r.SelectsRow(b, &b.Processes[i])
	}
	threads := b.Thread()
	for i := range b.Events {
		if !selects[b.Threads[threads.At(i)].Process] {
			continue
		}
		if err := r.to.event(b, i); err != nil {
			return err
		}
	}
	return nil
}

// next counts what is missing before a batch, and reports whether it is new.
func (r *reader) next(b *schema.Batch) bool {
	run := hostRun{b.Cluster, b.Host, b.BootID, b.Run}
	order := batchOrder{run, b.Kind}
	last, known := r.last[order]
	if known && b.Seq <= last {
		return false
	}
	if known {
		r.gaps += b.Seq - last - 1
	}
	r.last[order] = b.Seq
	lost, known := r.lost[run]
	if !known {
		lost.first = b.TotalLost()
	}
	lost.last = max(lost.last, b.TotalLost())
	r.lost[run] = lost
	return true
}

// missing returns sentences about what was not read.
func (r *reader) missing() (texts []string) {
	if r.gaps > 0 {
		texts = append(texts, app.Plural(r.gaps, "batch is", "batches are")+" missing")
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
