package pipeline

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/tensor"
)

// Torch is PyTorch's allocator in a process on one GPU.
type Torch struct {
	AllocatedBytes     uint64 `json:"allocated_bytes"`
	ReservedBytes      uint64 `json:"reserved_bytes"`
	PeakAllocatedBytes uint64 `json:"peak_allocated_bytes"`
	PeakReservedBytes  uint64 `json:"peak_reserved_bytes"`
	Blocks             uint64 `json:"blocks"`
	Verdict            string `json:"verdict"`
}

// addTensors adds the allocators. GPUs whose UUID is unknown are summed.
func (s *Snapshot) addTensors(report []tensor.Process) {
	for i := range report {
		q := &report[i]
		p := s.process(&q.Info)
		for _, g := range q.GPUs {
			uuid := cmp.Or(g.UUID, unknown)
			if p.Torch[uuid] == nil {
				p.Torch[uuid] = &Torch{Verdict: unknown}
			}
			t := p.Torch[uuid]
			t.AllocatedBytes += g.Allocated.Bytes
			t.ReservedBytes += g.Reserved.Bytes
			t.PeakAllocatedBytes += g.Allocated.Peak
			t.PeakReservedBytes += g.Reserved.Peak
			t.Blocks += g.Blocks
		}
	}
}

func writeTorch(out io.Writer, p *Process) {
	for _, uuid := range slices.Sorted(maps.Keys(p.Torch)) {
		t := p.Torch[uuid]
		cached := t.ReservedBytes - min(t.ReservedBytes, t.AllocatedBytes)
		fmt.Fprintf(out, "  torch %.12s: allocated %s, reserved %s (cached %s), %s\n", uuid,
			app.Bytes(t.AllocatedBytes), app.Bytes(t.ReservedBytes), app.Bytes(cached),
			app.Plural(t.Blocks, "block", "blocks"))
	}
}
