package naive

import (
	"cmp"

	"github.com/gputap/gputap/schema"
)

// allocator is PyTorch's allocator of one process on one GPU.
type allocator struct {
	allocated, reserved, peakAllocated, peakReserved uint64
	blocks                                           map[uint64]bool // by address
}

// torch returns the allocators of a process by GPU. The events before its last exec belong to another image.
func (l *Log) torch(id schema.ProcessID) Object {
	cut := schema.KTime(0)
	for _, e := range l.of(schema.KindMemory, id) {
		if e.call.Op == schema.OpExec {
			cut = e.Time
		}
	}
	gpus, uuids := map[int]*allocator{}, map[int]string{}
	for _, e := range l.of(schema.KindTensor, id) {
		if e.gpu != nil && e.gpu.UUID != "" {
			uuids[e.ordinal()] = e.gpu.UUID
		}
		if e.Time <= cut {
			continue
		}
		a := gpus[e.ordinal()]
		if a == nil {
			a = &allocator{blocks: map[uint64]bool{}}
			gpus[e.ordinal()] = a
			if e.call.Op == schema.OpBlockFree { // the block was handed out before the first report
				a.peakAllocated = e.allocated + e.Bytes
			}
		}
		a.allocated, a.reserved = e.allocated, e.reserved
		a.peakAllocated, a.peakReserved = max(a.peakAllocated, e.allocated), max(a.peakReserved, e.reserved)
		for _, other := range gpus { // addresses are of the process
			delete(other.blocks, e.Ptr)
		}
		if e.call.Op == schema.OpBlockAlloc {
			a.blocks[e.Ptr] = true
		}
	}
	out := Object{}
	for ordinal, a := range gpus {
		out[cmp.Or(uuids[ordinal], "unknown")] = Object{"allocated_bytes": a.allocated, "reserved_bytes": a.reserved,
			"cached_bytes": a.reserved - min(a.reserved, a.allocated),
			"blocks":       len(a.blocks), "verdict": "warming", "cache_verdict": "warming",
			"slope_bytes_per_hour": 0, "suspect_bytes": 0,
			"peak_allocated_bytes": a.peakAllocated, "peak_reserved_bytes": a.peakReserved}
	}
	return out
}
