package leak

import (
	"cmp"
	"math"
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

// create makes physical memory live under a handle. A multicast object holds none of its own.
func (t *Tracker) create(p *proc, m *schema.Memory) {
	i := t.insert(p, &p.State.handles, m)
	switch {
	case i == 0:
	case t.in.Calls[m.Call].Class == schema.ClassMulticast:
		t.slab.at(i).kind = multicast
	default:
		t.addLive(p, i, m.Bytes)
	}
}

// retain adds a reference to the physical memory that is mapped at the address m.Aux. The driver
// gives its handle again even when every reference had been released.
func (t *Tracker) retain(p *proc, m *schema.Memory) {
	s := &p.State
	i := s.handles.find(&t.slab, m.Ptr)
	if from, to := s.mapped(m.Aux, 1); from < to {
		i = s.mappings[from].memory
	}
	if i == 0 || m.Ptr == 0 {
		t.counters.UnknownHandles++
		return
	}
	a := t.slab.at(i)
	if a.refs == 0 {
		if old := s.handles.find(&t.slab, m.Ptr); old != 0 {
			t.countOverLive(p)
			t.drop(p, &s.handles, old)
		}
		a.key, a.since = m.Ptr, returned(m)
		s.handles.insert(&t.slab, i)
	}
	a.refs.up()
}

// release drops a reference to physical memory. When it was the last one, its handle may be given
// out again while mappings keep the memory.
func (t *Tracker) release(p *proc, m *schema.Memory) {
	i := p.State.handles.find(&t.slab, m.Ptr)
	switch {
	case i == 0:
		t.counters.UnknownHandles++
	case m.Time < t.slab.at(i).since:
		t.countLate(p)
	case t.slab.at(i).refs.down():
		t.drop(p, &p.State.handles, i)
	}
}

// maxMaps is how many mappings of one memory are told to be its. What is above is of unknown memory: a count at its limit
// would never come down, and the memory, in no index and no mapping, outlive its process.
const maxMaps = math.MaxUint16 - 1

// mapRange adds a mapping. As with allocations, mappings that it lies over have ended unseen.
func (t *Tracker) mapRange(p *proc, m *schema.Memory) {
	s := &p.State
	i := s.handles.find(&t.slab, m.Aux)
	if i == 0 || t.slab.at(i).maps >= maxMaps {
		t.counters.UnknownHandles++ // created before gputap was attached, mostly
		i = 0
	} else {
		t.slab.at(i).maps++
	}
	from, to := s.mapped(m.Ptr, m.Bytes)
	for _, old := range s.mappings[from:to] {
		t.countOverLive(p)
		t.unmapMemory(p, old)
	}
	g := mapping{ptr: m.Ptr, bytes: m.Bytes, since: returned(m), memory: i}
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
		t.countLate(p)
	case dropped == 0:
		t.countUnmatched(p)
	}
}

// unmapMemory takes one mapping off its memory, which goes with the last hold on it.
func (t *Tracker) unmapMemory(p *proc, g mapping) {
	if g.memory == 0 {
		return
	}
	a := t.slab.at(g.memory)
	if a.maps.down() && a.refs == 0 {
		t.remove(p, g.memory)
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
