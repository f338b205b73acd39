package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// origin is where seq counts.
type origin struct {
	boot string
	run  uint64
	kind schema.Kind
}

// seen is what the stream says of one process.
type seen struct {
	calls       map[string]uint64
	exits       uint64
	memory      bool      // something of it is a memory event
	first, last time.Time // of the guest's clock
}

// stored is what the stream holds. Batches that are there twice count once, as in every consumer.
type stored struct {
	times  times
	behind map[string]time.Duration // by boot

	sums      map[origin][]uint64 // of the batches, by seq - 1
	runs      []origin            // in the order in which they began; their kind is none
	processes map[schema.ProcessID]*seen
	events    uint64
	twice     int    // batches that were stored again
	lost      uint64 // as the producers counted
	last      map[origin]time.Time
	during    uint64 // events of the time of the outage

	// What came before the bus was back and was stored after that.
	kept struct {
		batches, bytes int
		events         uint64
		drained        time.Time // when the last of it was stored
	}
	faults []error
}

func newStored(t times, behind map[string]time.Duration) *stored {
	return &stored{
		times: t, behind: behind, sums: map[origin][]uint64{}, processes: map[schema.ProcessID]*seen{}, last: map[origin]time.Time{},
	}
}

// readStream reads the only shard from its beginning to its end.
func readStream(ctx context.Context, js jetstream.JetStream, t times, behind map[string]time.Duration) (*stored, error) {
	s := newStored(t, behind)
	jsStream, err := js.Stream(ctx, schema.StreamName(0))
	if err != nil {
		return nil, err
	}
	state := jsStream.CachedInfo().State
	if state.FirstSeq > 1 {
		return nil, fmt.Errorf("the stream has let go of its beginning, up to %d", state.FirstSeq)
	}
	ordered, err := jsStream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	messages, err := ordered.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	decoder, b := schema.NewDecoder(), &schema.Batch{}
	for range state.Msgs {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if err := s.take(decoder, b, m.Data(), meta.Timestamp); err != nil {
			return nil, fmt.Errorf("message %d: %w", meta.Sequence.Stream, err)
		}
	}
	return s, nil
}

// take adds a message that was stored at a time.
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

// inOrder is false for what was there already.
func (s *stored) inOrder(b *schema.Batch, data []byte) bool {
	at := origin{b.BootID, b.Run, b.Kind}
	h := fnv.New64a()
	_, _ = h.Write(data)
	sums := s.sums[at]
	if b.Seq <= uint64(len(sums)) {
		if s.twice++; sums[b.Seq-1] != h.Sum64() {
			s.fault("seq %d of %s is there twice, with different events", b.Seq, b.Kind)
		}
		return false
	}
	if b.Seq != uint64(len(sums))+1 {
		s.fault("seq %d of %s of boot %s comes after %d", b.Seq, b.Kind, b.BootID, len(sums))
		sums = append(sums, make([]uint64, b.Seq-uint64(len(sums))-1)...)
	}
	s.sums[at] = append(sums, h.Sum64())
	switch of := (origin{b.BootID, b.Run, schema.KindNone}); {
	case !slices.Contains(s.runs, of):
		s.runs = append(s.runs, of)
	case s.runs[len(s.runs)-1] != of:
		s.fault("seq %d of %s of boot %s comes after a later run has begun", b.Seq, b.Kind, b.BootID)
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

func (s *stored) process(id schema.ProcessID) *seen {
	p := s.processes[id]
	if p == nil {
		p = &seen{calls: map[string]uint64{}}
		s.processes[id] = p
	}
	return p
}

func (p *seen) count(c *schema.CallRef, wall time.Time) {
	if p.first.IsZero() || wall.Before(p.first) {
		p.first = wall
	}
	if wall.After(p.last) {
		p.last = wall
	}
	switch c.Op {
	case schema.OpExit:
		p.exits++
	case schema.OpExec: // what a shell does: no call of the driver
	default:
		p.calls[c.Symbol]++
	}
}

func (s *stored) err() error { return errors.Join(s.faults...) }
