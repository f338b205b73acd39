package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// origin is the scope of seq.
type origin struct {
	boot string
	run  uint64
	kind schema.Kind
}

// traced is the content of the stream for one process.
type traced struct {
	calls       map[string]uint64
	exits       uint64
	memory      bool      // it has memory events
	first, last time.Time // of the guest's clock
}

// stored is the content of the stream. A batch that is stored twice counts once, as in every consumer.
type stored struct {
	times  times
	behind map[string]time.Duration // by boot

	sums      map[origin][]uint64 // of the batches, by seq - 1
	runs      []origin            // of producers, in the order in which they began; kind is KindNone
	processes map[schema.ProcessID]*traced
	events    uint64
	twice     int    // batches that were stored again
	lost      uint64 // events, as the producers counted
	last      map[origin]time.Time
	during    uint64 // events from during the outage

	// What happened before NATS was reachable again, and was stored after that.
	kept struct {
		batches, bytes int
		events         uint64
		drained        time.Time // when the last batch was stored
	}
	faults []error
}

func newStored(t times, behind map[string]time.Duration) *stored {
	return &stored{
		times: t, behind: behind, sums: map[origin][]uint64{}, last: map[origin]time.Time{},
		processes: map[schema.ProcessID]*traced{},
	}
}

// readStream reads the only shard from its beginning to its end.
func readStream(
	ctx context.Context, js jetstream.JetStream, t times, behind map[string]time.Duration,
) (*stored, error) {
	s := newStored(t, behind)
	decoder, b := schema.NewDecoder(), &schema.Batch{}
	return s, cluster.EveryMessage(ctx, js, schema.StreamName(0), func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		return s.take(decoder, b, m.Data(), meta.Timestamp)
	})
}

// take adds a message, with the time at which it was stored.
func (s *stored) take(decoder *schema.Decoder, b *schema.Batch, data []byte, at time.Time) error {
	if err := decoder.Decode(data, b); err != nil {
		return err
	}
	if s.inOrder(b, data) {
		s.add(b, len(data), at)
	}
	return nil
}

func (s *stored) fault(format string, args ...any) {
	if s.faults = append(s.faults, fmt.Errorf(format, args...)); len(s.faults) > 20 {
		s.faults = s.faults[:20]
	}
}

// inOrder returns false for a batch that was stored before.
func (s *stored) inOrder(b *schema.Batch, data []byte) bool {
	at := origin{b.BootID, b.Run, b.Kind}
	h := fnv.New64a()
	_, _ = h.Write(data)
	sums := s.sums[at]
	if b.Seq <= uint64(len(sums)) {
		if s.twice++; sums[b.Seq-1] != h.Sum64() {
			s.fault("seq %d of %s is stored twice, with different events", b.Seq, b.Kind)
		}
		return false
	}
	if b.Seq != uint64(len(sums))+1 {
		s.fault("seq %d of %s of boot %s follows %d", b.Seq, b.Kind, b.BootID, len(sums))
		sums = append(sums, make([]uint64, b.Seq-uint64(len(sums))-1)...)
	}
	s.sums[at] = append(sums, h.Sum64())
	switch of := (origin{b.BootID, b.Run, schema.KindNone}); {
	case !slices.Contains(s.runs, of):
		s.runs = append(s.runs, of)
	case s.runs[len(s.runs)-1] != of:
		s.fault("seq %d of %s of boot %s follows a later run of the producer", b.Seq, b.Kind, b.BootID)
	}
	return true
}

// add counts the batch's events by process and symbol.
func (s *stored) add(b *schema.Batch, bytes int, at time.Time) {
	s.lost = max(s.lost, b.TotalLost())
	s.events += uint64(b.Events)
	for i := range b.Events {
		thread, call := b.Thread().At(i), uint64(0)
		if b.Kind == schema.KindLaunch {
			call = uint64(b.Shapes[b.Shape().At(i)].Call)
		} else {
			call = b.Call().At(i)
		}
		wall := b.Wall(schema.KTime(b.Time().At(i)))
		if ours := wall.Add(s.behind[b.BootID]); ours.After(s.times.down) && ours.Before(s.times.up) {
			s.during++
		}
		p := s.process(b.ID(&b.Processes[b.Threads[thread].Process]))
		p.memory = p.memory || b.Kind == schema.KindMemory
		p.count(&b.Calls[call], wall)
	}
	if b.Events == 0 {
		return
	}
	last := b.Wall(b.Last).Add(s.behind[b.BootID])
	s.last[origin{b.BootID, b.Run, b.Kind}] = last
	if last.Before(s.times.up) && at.After(s.times.up) {
		s.kept.batches++
		s.kept.bytes += bytes
		s.kept.events += uint64(b.Events)
		s.kept.drained = at
	}
}

func (s *stored) process(id schema.ProcessID) *traced {
	p := s.processes[id]
	if p == nil {
		p = &traced{calls: map[string]uint64{}}
		s.processes[id] = p
	}
	return p
}

func (p *traced) count(c *schema.CallRef, wall time.Time) {
	if p.first.IsZero() || wall.Before(p.first) {
		p.first = wall
	}
	if wall.After(p.last) {
		p.last = wall
	}
	switch c.Op {
	case schema.OpExit:
		p.exits++
	case schema.OpExec: // not a call of the driver
	default:
		p.calls[c.Symbol]++
	}
}

func (s *stored) err() error { return errors.Join(s.faults...) }
