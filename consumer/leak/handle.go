package leak

import (
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/gputap/gputap/schema"
)

// mapping is a mapped range of a process's address space.
type mapping struct {
	ptr    uint64
	bytes  uint64
	since  schema.KTime // return time of the call that made it
	memory uint32       // slab entry of the physical memory; 0: its creation was not seen
}

// create makes physical memory live under a handle. A multicast object has no memory of its own.
func (t *Tracker) create(p *proc, m *schema.Memory) {
	e := t.insert(p, &p.State.handles, m)
	switch {
	case e.number == 0:
	case t.in.Calls[m.Call].Class == schema.ClassMulticast:
		e.kind = multicast
		p.State.count(e.allocation, &t.threads.slots[e.thread], 1)
	default:
		t.addLive(p, e, m.Bytes)
	}
}

// retain adds a reference to the physical memory mapped at address m.Aux. The driver returns the handle again even
// after all references were released.
func (t *Tracker) retain(p *proc, m *schema.Memory) {
	s := &p.State
	e := s.handles.find(&t.slab, m.Ptr)
	if from, to := s.mapped(m.Aux, 1); from < to {
		e = t.slab.entry(s.mappings[from].memory)
	}
	if e.number == 0 || m.Ptr == 0 {
		t.counters.UnknownHandles++
		return
	}
	if e.refs == 0 {
		if old := s.handles.find(&t.slab, m.Ptr); old.number != 0 {
			t.count(p, reallocOverLive)
			t.drop(p, &s.handles, old)
		}
		p.State.move(e.allocation, returned(m))
		e.key = m.Ptr
		s.handles.insert(&t.slab, e)
	}
	e.refs.up()
}

// release removes a reference to physical memory. After the last release the driver may reuse the handle while
// mappings keep the memory.
func (t *Tracker) release(p *proc, m *schema.Memory) {
	e := p.State.handles.find(&t.slab, m.Ptr)
	switch {
	case e.number == 0:
		t.counters.UnknownHandles++
	case m.Time < e.since:
		t.count(p, lateFree)
	case e.refs.down():
		t.drop(p, &p.State.handles, e)
	}
}

// maxMaps limits the mappings counted for one piece of memory. Further mappings count as mappings of unknown memory:
// a saturated counter would never return to 0, and the memory would outlive its process.
const maxMaps = math.MaxUint16 - 1

// mapRange adds a mapping. Mappings that it overlaps have ended unseen, as with allocations.
func (t *Tracker) mapRange(p *proc, m *schema.Memory) {
	s := &p.State
	e := s.handles.find(&t.slab, m.Aux)
	if e.number == 0 || e.maps >= maxMaps {
		t.counters.UnknownHandles++ // usually the memory was created before gputap attached
		e = entry{}
	} else {
		e.maps++
	}
	from, to := s.mapped(m.Ptr, m.Bytes)
	for _, old := range s.mappings[from:to] {
		t.count(p, reallocOverLive)
		t.unmapMemory(p, old)
	}
	g := mapping{ptr: m.Ptr, bytes: m.Bytes, since: returned(m), memory: e.number}
	s.mappings = slices.Replace(s.mappings, from, to, g)
}

// unmapRange removes every mapping inside the range that existed when the call entered.
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
		t.count(p, lateFree)
	case dropped == 0:
		t.count(p, unmatchedFree)
	}
}

// unmapMemory removes one mapping from its memory. Memory without references and mappings is freed.
func (t *Tracker) unmapMemory(p *proc, g mapping) {
	if t.slab.unmap(g.memory) {
		t.remove(p, t.slab.entry(g.memory))
	}
}

// mapped returns the mappings that overlap [ptr, ptr+bytes), as a half-open range of indexes. Mappings do not overlap
// each other.
func (s *state) mapped(ptr, bytes uint64) (from, to int) {
	from = sort.Search(len(s.mappings), func(i int) bool { return endOf(s.mappings[i].ptr, s.mappings[i].bytes) > ptr })
	to = sort.Search(len(s.mappings), func(i int) bool { return s.mappings[i].ptr >= endOf(ptr, bytes) })
	return from, max(from, to)
}

// endOf returns the end of a range. A range that would wrap around ends at the top of the address space.
func endOf(ptr, bytes uint64) uint64 {
	if end := ptr + bytes; end >= ptr {
		return end
	}
	return ^uint64(0)
}

const (
	maxExports = 4096    // per host; the newest are kept
	minToken   = 1 << 32 // smaller tokens are file descriptors, which are private to one process
)

// open adds a holder: memory of another process or another API that becomes usable here. Its bytes are counted where
// it was allocated. The end of a context closes what cuIpcOpenMemHandle opened in it (measured: driver 580, H200).
// Imported pool pointers have the same class but belong to no context.
func (t *Tracker) open(p *proc, m *schema.Memory) {
	s, class := &p.State, t.in.Calls[m.Call].Class
	x := &s.addresses
	if class == schema.ClassVMM {
		x = &s.handles
	}
	old := x.find(&t.slab, m.Ptr)
	if old.number != 0 && class == schema.ClassIPC && old.kind == opened && old.bytes == m.Aux {
		old.refs.up() // the driver returns the same address again and counts references
		return
	}
	e := t.insert(p, x, m)
	if e.number == 0 {
		return
	}
	e.kind, e.bytes = opened, m.Aux
	if strings.HasPrefix(t.in.Calls[m.Call].Symbol, "cuIpc") {
		e.owner = t.context(p, m)
	}
	s.count(e.allocation, &t.threads.slots[e.thread], 1)
	t.slab.link(&s.newestHolder, e)
}

// close ends a holder.
func (t *Tracker) close(p *proc, m *schema.Memory) {
	x := &p.State.addresses
	e := x.find(&t.slab, m.Ptr)
	switch {
	case e.number == 0 || e.kind != opened:
		t.count(p, unmatchedFree)
	case m.Time < e.since:
		t.count(p, lateFree)
	case e.refs.down():
		t.drop(p, x, e)
	}
}

// exports stores which process exported each token of a host.
type exports struct {
	owners map[uint64]uint32 // PID by token
	tokens []uint64          // oldest first
}

// export stores a token. The driver returns the same token every time the same memory is exported.
func (t *Tracker) export(p *proc, m *schema.Memory) {
	p.State.exports++
	if m.Aux >= minToken {
		p.State.boot.exports.add(m.Aux, p.ID.PID)
	}
}

func (x *exports) add(token uint64, owner uint32) {
	if x.owners == nil {
		x.owners = map[uint64]uint32{}
	}
	if _, known := x.owners[token]; !known {
		if len(x.tokens) == maxExports {
			delete(x.owners, x.tokens[0])
			x.tokens = x.tokens[1:]
		}
		x.tokens = append(x.tokens, token)
	}
	x.owners[token] = owner
}
