package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

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
	times   times
	behind  map[string]time.Duration // by boot
	decoder *schema.Decoder
	batch   schema.Batch

	sums      map[origin][]uint64 // of the batches, by seq - 1
	runs      []origin            // of producers, in the order in which they began; kind is KindNone
	processes map[schema.ProcessID]*traced
	batches   int
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
		times: t, behind: behind, decoder: schema.NewDecoder(), sums: map[origin][]uint64{},
		last: map[origin]time.Time{}, processes: map[schema.ProcessID]*traced{},
	}
}

func (s *stored) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

func (s *stored) err() error { return errors.Join(s.faults[:min(len(s.faults), 20)]...) }

// add adds a message, with the time at which it was stored.
func (s *stored) add(data []byte, at time.Time) error {
	b := &s.batch
	if err := s.decoder.Decode(data, b); err != nil {
		return err
	}
	if !s.inOrder(b, data) {
		return nil
	}
	s.batches++
	s.events += uint64(b.Events)
	s.lost = max(s.lost, b.TotalLost())
	for i := range b.Events {
		s.addEvent(b, i)
	}
	if b.Events == 0 {
		return nil
	}
	last := b.Wall(b.Last).Add(s.behind[b.BootID])
	s.last[origin{b.BootID, b.Run, b.Kind}] = last
	if last.Before(s.times.up) && at.After(s.times.up) {
		s.kept.batches++
		s.kept.bytes += len(data)
		s.kept.events += uint64(b.Events)
		s.kept.drained = at
	}
	return nil
}

var seed = maphash.MakeSeed()

// inOrder returns false for a batch that was stored before.
func (s *stored) inOrder(b *schema.Batch, data []byte) bool {
	at, sum := origin{b.BootID, b.Run, b.Kind}, maphash.Bytes(seed, data)
	sums := s.sums[at]
	if b.Seq <= uint64(len(sums)) {
		if s.twice++; sums[b.Seq-1] != sum {
			s.fault("seq %d of %s is stored twice, with different events", b.Seq, b.Kind)
		}
		return false
	}
	if missing := b.Seq - uint64(len(sums)) - 1; missing > 0 {
		s.fault("seq %d of %s of boot %s follows %d", b.Seq, b.Kind, b.BootID, len(sums))
		sums = append(sums, make([]uint64, missing)...)
	}
	s.sums[at] = append(sums, sum)
	switch run := (origin{b.BootID, b.Run, schema.KindNone}); {
	case !slices.Contains(s.runs, run):
		s.runs = append(s.runs, run)
	case s.runs[len(s.runs)-1] != run:
		s.fault("seq %d of %s of boot %s follows a later run of the producer", b.Seq, b.Kind, b.BootID)
	}
	return true
}

// addEvent counts an event of a batch by process and symbol.
func (s *stored) addEvent(b *schema.Batch, i int) {
	var call uint64
	if b.Kind == schema.KindLaunch {
		call = uint64(b.Shapes[b.Shape().At(i)].Call)
	} else {
		call = b.Call().At(i)
	}
	wall := b.Wall(schema.KTime(b.Time().At(i)))
	if ours := wall.Add(s.behind[b.BootID]); ours.After(s.times.down) && ours.Before(s.times.up) {
		s.during++
	}
	id := b.ID(&b.Processes[b.Threads[b.Thread().At(i)].Process])
	p := s.processes[id]
	if p == nil {
		p = &traced{calls: map[string]uint64{}, first: wall, last: wall}
		s.processes[id] = p
	}
	p.memory = p.memory || b.Kind == schema.KindMemory
	if wall.Before(p.first) {
		p.first = wall
	}
	if wall.After(p.last) {
		p.last = wall
	}
	switch c := &b.Calls[call]; c.Op {
	case schema.OpExit:
		p.exits++
	case schema.OpExec: // not a call of the driver
	default:
		p.calls[c.Symbol]++
	}
}
