package tensor

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Process is the allocator of one process.
type Process struct {
	process.Info
	Ended    bool // its figures are those of its last reports
	Evidence string
	GPUs     []GPU // in order of first use
}

// GPU is the allocator of a process on one GPU.
type GPU struct {
	UUID           string // "" while unknown
	Ordinal        int32  // in the process's numbering; -1 if unknown
	Inferred       bool
	Last           time.Time // of the last report
	Allocated      Level     // bytes of blocks
	Reserved       Level     // bytes of driver memory
	Blocks         uint64    // that were seen handed out and not taken back
	BlockBytes     uint64    // of them; equal to Allocated if all reports were seen
	UnmatchedFrees uint64
	Replaced       uint64
	Verdict        Verdict
	Largest        []Block // the largest first
}

// Level is an amount in bytes.
type Level struct {
	Bytes  uint64
	Peak   uint64
	PeakAt time.Time
}

// Block is one live block.
type Block struct {
	Ptr   uint64
	Bytes uint64
	TID   uint32
	Comm  string // of the thread; "" if unknown
	At    time.Time
}

// Cached returns the bytes that the allocator holds without a block in them.
func (g *GPU) Cached() uint64 { return g.Reserved.Bytes - min(g.Reserved.Bytes, g.Allocated.Bytes) }

// Report returns the processes that have an allocator, in order of first sight, each with up to so many of its largest
// blocks on each GPU.
func (f *Fold) Report(largest int) []Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	report := []Process{}
	for _, p := range f.processes.All() {
		q := Process{Info: p.Info, Ended: p.Ended, Evidence: evidence(p)}
		for _, d := range p.State.devices {
			if d.last != 0 { // else an exec ended its reports
				q.GPUs = append(q.GPUs, f.describe(p, d, largest))
			}
		}
		if len(q.GPUs) > 0 {
			report = append(report, q)
		}
	}
	return report
}

// wall converts a time of a process's host to wall time. 0 stands for never.
func wall(p *process.Entry[state], at schema.KTime) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return p.Start.Add(time.Duration(at - p.ID.Start))
}

func (f *Fold) describe(p *process.Entry[state], d *device, largest int) GPU {
	wall := func(at schema.KTime) time.Time { return wall(p, at) }
	g := GPU{
		UUID: d.uuid, Ordinal: d.ordinal, Inferred: d.inferred, Last: wall(d.last),
		Allocated: Level{d.allocated.now, d.allocated.peak, wall(d.allocated.peakAt)},
		Reserved:  Level{d.reserved.now, d.reserved.peak, wall(d.reserved.peakAt)},
		Blocks:    d.blocks, BlockBytes: d.bytes, UnmatchedFrees: d.unmatched, Replaced: d.replaced,
		Verdict: f.verdict(p, d),
	}
	for _, b := range p.State.largest(d, largest) {
		g.Largest = append(g.Largest, Block{b.ptr, b.bytes, b.tid, p.State.comms[b.tid], wall(b.since)})
	}
	return g
}

// scanned is how many blocks largest looks at beyond those that it returns: the newest of a size class.
const scanned = 4096

// largest returns the n largest blocks on a GPU. If thousands of blocks differ by less than an eighth, the result may
// lack the oldest of them.
func (s *state) largest(d *device, n int) []*block {
	var found []*block
	for size := len(d.sizes) - 1; size >= 0 && len(found) < n; size-- {
		for i := d.sizes[size]; i != 0 && len(found) < n+scanned; i = s.blocks.at(i).next {
			found = append(found, s.blocks.at(i))
		}
	}
	slices.SortFunc(found, func(a, b *block) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.since, b.since), cmp.Compare(a.ptr, b.ptr))
	})
	return found[:min(n, len(found))]
}
