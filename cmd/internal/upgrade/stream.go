package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// origin is where seq counts.
type origin struct {
	boot string
	run  uint64
	kind schema.Kind
}

// told is what the stream holds of one process.
type told struct {
	calls, bytes map[string]uint64 // by symbol; bytes of those that succeeded
	exits        int
	memory       bool
}

// stored is what the streams hold of the host.
type stored struct {
	sums      map[origin][]uint64 // by seq - 1, of the batch
	runs      []uint64            // in order
	processes map[schema.ProcessID]*told
	lost      map[uint64]uint64 // by run: events that the producer counted as lost
	batches   map[uint64]int    // by run
	twice     int
	faults    []error
}

func newStored() *stored {
	return &stored{
		sums: map[origin][]uint64{}, processes: map[schema.ProcessID]*told{}, lost: map[uint64]uint64{}, batches: map[uint64]int{},
	}
}

// read adds what a shard's stream holds.
func (s *stored) read(ctx context.Context, js jetstream.JetStream, shard int) error {
	jsStream, err := js.Stream(ctx, schema.StreamName(shard))
	if err != nil {
		return err
	}
	state := jsStream.CachedInfo().State
	if state.Msgs > 0 && state.FirstSeq > 1 {
		return fmt.Errorf("shard %d has let go of its beginning, up to %d", shard, state.FirstSeq)
	}
	ordered, err := jsStream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := ordered.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return err
	}
	defer messages.Stop()
	decoder, b := schema.NewDecoder(), &schema.Batch{}
	for range state.Msgs {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if err := s.take(decoder, b, m.Data()); err != nil {
			return fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	return nil
}

func (s *stored) take(decoder *schema.Decoder, b *schema.Batch, data []byte) error {
	if err := decoder.Decode(data, b); err != nil {
		return err
	}
	if s.inOrder(b, data) {
		s.add(b)
	}
	return nil
}

func (s *stored) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

// inOrder is false for what was there already.
func (s *stored) inOrder(b *schema.Batch, data []byte) bool {
	at := origin{b.BootID, b.Run, b.Kind}
	h := fnv.New64a()
	_, _ = h.Write(data)
	sums := s.sums[at]
	if b.Seq <= uint64(len(sums)) {
		if s.twice++; b.Seq == 0 || sums[b.Seq-1] != h.Sum64() {
			s.fault("run %d: seq %d of %s is there twice, with different events", b.Run, b.Seq, b.Kind)
		}
		return false
	}
	if b.Seq != uint64(len(sums))+1 {
		s.fault("run %d: seq %d of %s comes after %d", b.Run, b.Seq, b.Kind, len(sums))
		sums = append(sums, make([]uint64, b.Seq-uint64(len(sums))-1)...)
	}
	s.sums[at] = append(sums, h.Sum64())
	switch last := len(s.runs) - 1; {
	case last < 0 || b.Run > s.runs[last]:
		s.runs = append(s.runs, b.Run)
	case b.Run < s.runs[last]:
		s.fault("run %d: seq %d of %s comes after a later run has begun", b.Run, b.Seq, b.Kind)
	}
	s.batches[b.Run]++
	s.lost[b.Run] = max(s.lost[b.Run], b.TotalLost())
	return true
}

// add counts the batch's events by process and symbol.
func (s *stored) add(b *schema.Batch) {
	for i := range b.Events {
		call := uint64(0)
		if b.Kind == schema.KindLaunch {
			call = uint64(b.Shapes[b.Shape().At(i)].Call)
		} else {
			call = b.Call().At(i)
		}
		c := &b.Calls[call]
		p := s.process(b.ID(&b.Processes[b.Threads[b.Thread().At(i)].Process]))
		p.memory = p.memory || b.Kind == schema.KindMemory
		switch c.Op {
		case schema.OpExit:
			p.exits++
			continue
		case schema.OpExec:
			continue
		}
		p.calls[c.Symbol]++
		if b.Kind != schema.KindLaunch && b.Result().At(i) == 0 {
			p.bytes[c.Symbol] += b.Bytes().At(i)
		}
	}
}

func (s *stored) process(id schema.ProcessID) *told {
	p := s.processes[id]
	if p == nil {
		p = &told{calls: map[string]uint64{}, bytes: map[string]uint64{}}
		s.processes[id] = p
	}
	return p
}

// find is the process of an image: of those with its PID the last one that was there when it was loaded.
func (s *stored) find(pid uint32, loaded uint64) (id schema.ProcessID, p *told) {
	for other, q := range s.processes {
		if other.PID == pid && uint64(other.Start) <= loaded && other.Start >= id.Start {
			id, p = other, q
		}
	}
	return id, p
}

func (s *stored) err() error { return errors.Join(s.faults[:min(len(s.faults), 20)]...) }
