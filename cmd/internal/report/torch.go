package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/consumer/trend"
)

// Torch is PyTorch's allocator in a process on one GPU.
type Torch struct {
	AllocatedBytes     uint64 `json:"allocated_bytes"`
	ReservedBytes      uint64 `json:"reserved_bytes"`
	CachedBytes        uint64 `json:"cached_bytes"` // reserved and not allocated
	PeakAllocatedBytes uint64 `json:"peak_allocated_bytes"`
	PeakReservedBytes  uint64 `json:"peak_reserved_bytes"`
	Blocks             uint64 `json:"blocks"`
	Verdict            string `json:"verdict"` // about the blocks
	CacheVerdict       string `json:"cache_verdict"`
	SlopeBytesPerHour  uint64 `json:"slope_bytes_per_hour"` // of the blocks
	SuspectBytes       uint64 `json:"suspect_bytes"`
	Why                string `json:"why"`

	LargestBlocks []Block `json:"largest_blocks,omitempty"` // of gputap describe only
}

// Block is memory that PyTorch's allocator handed out.
type Block struct {
	Address string    `json:"address"`
	Bytes   uint64    `json:"bytes"`
	TID     uint32    `json:"tid"`
	Thread  string    `json:"thread"`
	Since   time.Time `json:"since"`
}

// AddTensors adds the allocators of a process of the tensor fold. GPUs whose UUID is unknown are summed.
func (s *Snapshot) AddTensors(q *tensor.Process) {
	p := s.process(&q.Info)
	for _, g := range q.GPUs {
		uuid := cmp.Or(g.UUID, Unknown)
		if p.Torch[uuid] == nil {
			v := &g.Verdict
			p.Torch[uuid] = &Torch{Verdict: v.State.String(), CacheVerdict: v.Cache.String(),
				SlopeBytesPerHour: v.PerHour, SuspectBytes: v.SuspectBytes, Why: v.Why}
		}
		t := p.Torch[uuid]
		t.AllocatedBytes += g.Allocated.Bytes
		t.ReservedBytes += g.Reserved.Bytes
		t.CachedBytes += g.Cached()
		t.PeakAllocatedBytes += g.Allocated.Peak
		t.PeakReservedBytes += g.Reserved.Peak
		t.Blocks += g.Blocks
		for _, b := range g.Largest {
			t.LargestBlocks = append(t.LargestBlocks, Block{hex(b.Ptr), b.Bytes, b.TID, b.Comm, b.At})
		}
	}
}

func writeTorch(out io.Writer, p *Process) {
	for _, uuid := range slices.Sorted(maps.Keys(p.Torch)) {
		t := p.Torch[uuid]
		fmt.Fprintf(out, "  torch %s: allocated %s, reserved %s (cached %s), %s\n", gpuName(uuid),
			app.Bytes(t.AllocatedBytes), app.Bytes(t.ReservedBytes), app.Bytes(t.CachedBytes),
			app.Plural(t.Blocks, "block", "blocks"))
		if t.Verdict != trend.Warming.String() {
			fmt.Fprintf(out, "    %s: %s\n", t.Verdict, t.Why)
		}
	}
}

// writeBlocks prints the largest blocks of PyTorch's allocator.
func writeBlocks(out io.Writer, p *Process, now time.Time) {
	for _, uuid := range slices.Sorted(maps.Keys(p.Torch)) {
		t := p.Torch[uuid]
		if len(t.LargestBlocks) == 0 {
			continue
		}
		fmt.Fprintf(out, "  largest blocks of PyTorch on %s: %d of %d\n", gpuName(uuid), len(t.LargestBlocks), t.Blocks)
		for _, b := range t.LargestBlocks {
			fmt.Fprintf(out, "    %-16s %11s  thread %d %s, %s old\n", b.Address, app.Bytes(b.Bytes), b.TID, b.Thread,
				now.Sub(b.Since).Round(time.Second))
		}
	}
}
