package process

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// hostMem is the host memory of one process that GPUs reach without a staging buffer: pinned, registered and managed
// ranges. One that ended stays a while, because copies are read from other rings, after later control records.
type hostMem struct {
	reached   []hostRange    // those that exist, in order of address
	ended     []hostRange    // in order of their end
	forgotten uint64         // time up to which ended ranges were forgotten early
	users     map[uint64]int // of primary contexts, by handle
	managed   int            // ranges of managed memory that exist
	gap       bool           // ranges are missing: other memory may be pageable or not
}

type hostRange struct {
	ptr, end     uint64
	since, until uint64
	context      uint64
	managed      bool
}

// Bounds for each process. A data loader pins some hundred blocks.
const (
	maxReached = 1 << 12
	maxEnded   = 1 << 8
)

// reachable reports whether memory of a class is what hostMem remembers.
func reachable(c schema.MemClass) bool { return c.OnHost() || c == schema.ClassManaged }

// HasManaged reports whether any free may be one of managed memory.
func (h *hostMem) HasManaged() bool { return h.managed > 0 }

// learnHostMem notes host memory that a successful call made or ended.
func (p *Process) learnHostMem(m *bpf.MemoryRecord, op schema.Op) {
	h := &p.hostMem
	if m.Result != 0 {
		return
	}
	switch op {
	case schema.OpAlloc:
		if c := schema.Calls[m.Call].Class; reachable(c) && m.Ptr != 0 && m.Capture == 0 {
			h.add(hostRange{ptr: m.Ptr, end: m.Ptr + m.Bytes, since: m.Time + m.Duration, context: m.CUDAContext,
				managed: c == schema.ClassManaged})
			p.budget.add(handleBytes)
		}
	case schema.OpFree:
		h.free(m.Ptr, m.Time)
	case schema.OpContextRetain:
		if h.users == nil {
			h.users = map[uint64]int{}
		}
		h.users[m.Ptr]++
	case schema.OpContextRelease:
		context := p.primaries[uint32(m.Device)]
		if h.users[context]--; h.users[context] > 0 || p.Late {
			return
		}
		delete(h.users, context)
		h.endContext(context, m.Time)
	case schema.OpContextReset:
		h.endContext(p.primaries[uint32(m.Device)], m.Time)
	case schema.OpContextDestroy:
		h.endContext(m.Ptr, m.Time)
	}
}

func (h *hostMem) add(r hostRange) {
	at, known := h.search(r.ptr)
	if known { // its free was not seen
		h.end(&h.reached[at], r.since)
		h.reached[at] = r
	} else if len(h.reached) >= maxReached {
		h.gap = true
		return
	} else {
		h.reached = slices.Insert(h.reached, at, r)
	}
	if r.managed {
		h.managed++
	}
}

// search returns the place of a range that begins at an address.
func (h *hostMem) search(ptr uint64) (at int, known bool) {
	return slices.BinarySearchFunc(h.reached, ptr, func(r hostRange, ptr uint64) int { return cmp.Compare(r.ptr, ptr) })
}

func (h *hostMem) free(ptr, at uint64) {
	if i, known := h.search(ptr); known {
		h.end(&h.reached[i], at)
		h.reached = slices.Delete(h.reached, i, i+1)
	}
}

func (h *hostMem) endContext(context, at uint64) {
	h.reached = slices.DeleteFunc(h.reached, func(r hostRange) bool {
		if r.context == context {
			h.end(&r, at)
		}
		return r.context == context
	})
}

// end keeps a range that is about to be removed for the copies that are still in a ring.
func (h *hostMem) end(r *hostRange, at uint64) {
	if r.managed {
		h.managed--
	}
	old := 0
	for old < len(h.ended) && h.ended[old].until+readDelay < at {
		old++
	}
	if h.ended = slices.Delete(h.ended, 0, old); len(h.ended) >= maxEnded {
		h.forgotten = h.ended[0].until
		h.ended = slices.Delete(h.ended, 0, 1)
	}
	ended := *r
	ended.until = at
	h.ended = append(h.ended, ended)
}

// find returns the range that contained an address at a time.
func (h *hostMem) find(ptr, at uint64) *hostRange {
	i, known := h.search(ptr)
	if !known {
		i--
	}
	if i >= 0 && ptr < h.reached[i].end && h.reached[i].since <= at {
		return &h.reached[i]
	}
	for i := range h.ended {
		if r := &h.ended[i]; ptr >= r.ptr && ptr < r.end && r.since <= at && at < r.until {
			return r
		}
	}
	return nil
}

// class returns the class of the memory at an address of the host.
func (h *hostMem) class(ptr, at uint64) schema.HostMem {
	switch {
	case h.find(ptr, at) != nil:
		return schema.HostMemPinned
	case h.gap || at < h.forgotten:
		return schema.HostMemUnknown
	}
	return schema.HostMemPageable
}

// HostMem returns the class of the host memory of a copy.
func (p *Process) HostMem(direction schema.Direction, dst, src, at uint64) schema.HostMem {
	var class schema.HostMem
	switch direction {
	case schema.HtoD:
		class = p.class(src, at)
	case schema.DtoH:
		class = p.class(dst, at)
	case schema.HtoH: // staged if one side is
		if class = p.class(dst, at); class == schema.HostMemPinned {
			class = p.class(src, at)
		}
	case schema.DirDefault: // an address that is not known may be one of a GPU
		for _, ptr := range []uint64{dst, src} {
			if r := p.find(ptr, at); r != nil && !r.managed {
				class = schema.HostMemPinned
			}
		}
	}
	if class == schema.HostMemPageable && p.Late {
		return schema.HostMemUnknown
	}
	return class
}
