package answer

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/consumer/trend"
)

// Torch is PyTorch's allocator in a process on one GPU.
type Torch struct {
	AllocatedBytes     uint64 `json:"allocated_bytes"`
	ReservedBytes      uint64 `json:"reserved_bytes"`
	PeakAllocatedBytes uint64 `json:"peak_allocated_bytes"`
	PeakReservedBytes  uint64 `json:"peak_reserved_bytes"`
	Blocks             uint64 `json:"blocks"`
	Verdict            string `json:"verdict"` // about the blocks
	CacheVerdict       string `json:"cache_verdict"`
	SlopeBytesPerHour  uint64 `json:"slope_bytes_per_hour"` // of the blocks
	SuspectBytes       uint64 `json:"suspect_bytes"`
	Why                string `json:"why"`
}

// addTensors adds the allocators of a process. GPUs whose UUID is unknown are summed.
func (s *Snapshot) addTensors(q *tensor.Process) {
	p := s.process(&q.Info)
	for _, g := range q.GPUs {
		uuid := cmp.Or(g.UUID, unknown)
		if p.Torch[uuid] == nil {
			v := &g.Verdict
			p.Torch[uuid] = &Torch{Verdict: v.State.String(), CacheVerdict: v.Cache.String(),
				SlopeBytesPerHour: v.PerHour, SuspectBytes: v.SuspectBytes, Why: v.Why}
		}
		t := p.Torch[uuid]
		t.AllocatedBytes += g.Allocated.Bytes
		t.ReservedBytes += g.Reserved.Bytes
		t.PeakAllocatedBytes += g.Allocated.Peak
		t.PeakReservedBytes += g.Reserved.Peak
		t.Blocks += g.Blocks
	}
}

// tensorRows are the processes with the most driver memory of PyTorch first.
func tensorRows(f *tensor.Fold, q *query.Question) (iter.Seq[any], int) {
	rows := selected(f.Report(0), q, func(p *tensor.Process) *process.Info { return &p.Info })
	return largest(rows, q.Limit, func(p *tensor.Process) (n uint64) {
		for i := range p.GPUs {
			n += p.GPUs[i].Reserved.Bytes
		}
		return n
	})
}

func writeTorch(out io.Writer, p *Process) {
	for _, uuid := range slices.Sorted(maps.Keys(p.Torch)) {
		t := p.Torch[uuid]
		cached := t.ReservedBytes - min(t.ReservedBytes, t.AllocatedBytes)
		fmt.Fprintf(out, "  torch %.12s: allocated %s, reserved %s (cached %s), %s\n", uuid,
			app.Bytes(t.AllocatedBytes), app.Bytes(t.ReservedBytes), app.Bytes(cached),
			app.Plural(t.Blocks, "block", "blocks"))
		if t.Verdict != trend.Warming.String() {
			fmt.Fprintf(out, "    %s: %s\n", t.Verdict, t.Why)
		}
	}
}
