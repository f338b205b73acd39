package leak

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/schema"
)

// mapping is a range of a process's address space that maps physical memory.
type mapping struct {
	ptr    uint64
	bytes  uint64
	since  schema.KTime // return of the call that made it
	memory uint32       // number of the physical memory; 0: its creation was not seen
}

// release drops the reference to physical memory. Its handle may be given out again while mappings
// keep the memory.
func (t *Tracker) release(p *proc, m *schema.Memory) {
	i := p.State.handles.find(&t.slab, m.Ptr)
	switch {
	case i == 0:
		t.counters.UnknownHandles++
	case m.Time < t.slab.at(i).since:
		t.late(p)
	default:
		t.drop(p, &p.State.handles, i)
	}
}

// mapRange adds a mapping. As with allocations, mappings that it lies over have ended unseen.
func (t *Tracker) mapRange(p *proc, m *schema.Memory) {
	s := &p.State
	i := s.handles.find(&t.slab, m.Aux)
	if i == 0 {
		t.counters.UnknownHandles++ // imported, or created before gputap was attached
	} else {
		t.slab.at(i).maps++
	}
	from, to := s.mapped(m.Ptr, m.Bytes)
	for _, old := range s.mappings[from:to] {
		t.counters.ReallocOverLive++
		s.host.totals.reallocOverLive++
		t.unmapMemory(p, old)
	}
	g := mapping{ptr: m.Ptr, bytes: m.Bytes, since: m.Time + schema.KTime(m.Duration), memory: i}
	s.mappings = slices.Replace(s.mappings, from, to, g)
}

// unmapRange drops every mapping inside the range that was there when the call entered.
func (t *Tracker) unmapRange(p *proc, m *schema.Memory) {
	s := &p.State
	from, to := s.mapped(m.Ptr, m.Bytes)
	end := endOf(m.Ptr, m.Bytes)
	dropped, late := 0, false
	kept := s.mappings[from:from]
	for _, g := range s.mappings[from:to] {
		switch inside := g.ptr >= m.Ptr && endOf(g.ptr, g.bytes) <= end; {
		case inside && m.Time >= g.since:
			dropped++
			t.unmapMemory(p, g)
			continue
		case inside:
			late = true
		}
		kept = append(kept, g)
	}
	s.mappings = slices.Delete(s.mappings, from+len(kept), to)
	switch {
	case late:
		t.late(p)
	case dropped == 0:
		t.unmatched(p)
	}
}

// unmapMemory takes one mapping off its memory, which goes with the last hold on it.
func (t *Tracker) unmapMemory(p *proc, g mapping) {
	if g.memory == 0 {
		return
	}
	a := t.slab.at(g.memory)
	a.maps--
	if a.maps == 0 && !a.named {
		t.vanish(p, g.memory)
	}
}

// mapped is the range of mappings that touch [ptr, ptr+bytes). Mappings do not overlap.
func (s *state) mapped(ptr, bytes uint64) (from, to int) {
	from, _ = slices.BinarySearchFunc(s.mappings, ptr, func(g mapping, ptr uint64) int {
		if endOf(g.ptr, g.bytes) <= ptr {
			return -1
		}
		return 1
	})
	to, _ = slices.BinarySearchFunc(s.mappings, endOf(ptr, bytes), func(g mapping, end uint64) int {
		return cmp.Compare(g.ptr, end)
	})
	return from, max(from, to)
}

// endOf is where a range ends; what goes around the address space ends at its top.
func endOf(ptr, bytes uint64) uint64 {
	if end := ptr + bytes; end >= ptr {
		return end
	}
	return ^uint64(0)
}
