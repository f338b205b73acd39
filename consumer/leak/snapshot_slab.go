package leak

import (
	"cmp"
	"math"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Bits of the first byte of an allocation, above the two bits of its entryKind. A field that is left out equals that
// of the previous allocation. Times, keys and bytes are differences to it.
const (
	kindBits   = 3
	inHandles  = 1 << 2 // its key is a handle
	counted    = 1 << 3 // refs and maps follow; otherwise 1 and 0
	sameThread = 1 << 4
	sameKind   = 1 << 5 // same row, origin and owner

	leastAllocation = 4
)

// allocations writes live memory by size class, the newest first. Then it writes for each process its holders, the
// newest first, its multicast objects and its mappings.
func (s *saver) allocations(m *host) {
	s.slots, s.origins, s.mapped, s.last = map[uint32]uint64{}, [256]uint64{}, map[uint32]uint64{}, allocation{}
	s.Uint(uint64(m.sizes.count))
	for size := len(m.sizes.heads) - 1; size >= 0; size-- {
		for i := m.sizes.heads[size]; i != 0; i = s.slab.at(i).next {
			s.allocation(i)
		}
	}
	for _, p := range s.table.Of(m.id) {
		s.Uint(p.State.holders)
		for i := p.State.newestHolder; i != 0; i = s.slab.at(i).next {
			s.allocation(i)
		}
		objects := s.multicasts(&p.State)
		s.Uint(uint64(len(objects)))
		for _, i := range objects {
			s.allocation(i)
		}
		s.mappings(p.State.mappings)
	}
}

// multicasts returns a process's multicast objects: first those with a handle, sorted by handle, then those kept only
// by mappings.
func (s *saver) multicasts(a *state) (all []uint32) {
	for _, i := range a.handles.heads {
		for ; i != 0; i = s.slab.at(i).chain {
			if s.slab.at(i).kind == multicast {
				all = append(all, i)
			}
		}
	}
	slices.SortFunc(all, func(a, b uint32) int { return cmp.Compare(s.slab.at(a).key, s.slab.at(b).key) })
	seen := map[uint32]bool{}
	for _, g := range a.mappings {
		if g.memory == 0 || seen[g.memory] {
			continue
		}
		if b := s.slab.at(g.memory); b.kind == multicast && b.refs == 0 {
			seen[g.memory] = true
			all = append(all, g.memory)
		}
	}
	return all
}

func (s *saver) allocation(i uint32) {
	a, last := s.slab.at(i), &s.last
	handles := &s.threads.slots[a.thread].process.State.handles
	head := byte(a.kind)
	if a.refs > 0 && handles.count > 0 && handles.find(&s.slab, a.key) == i {
		head |= inHandles
	}
	if a.refs != 1 || a.maps != 0 {
		head |= counted
	}
	first := len(s.slots) == 0
	if a.thread == last.thread && !first {
		head |= sameThread
	}
	if a.row == last.row && a.origin == last.origin && a.owner == last.owner && !first {
		head |= sameKind
	}
	s.Byte(head)
	s.Int(int64(a.key - last.key))
	s.Int(int64(a.bytes - last.bytes))
	s.Int(int64(a.since - last.since))
	if head&sameThread == 0 {
		s.slot(a.thread)
	}
	if head&sameKind == 0 {
		s.Byte(a.row)
		s.Byte(a.owner)
		s.origin(a.origin)
	}
	if head&counted != 0 {
		s.Uint(uint64(a.refs))
		s.Uint(uint64(a.maps))
		if a.maps > 0 {
			s.mapped[i] = uint64(len(s.mapped)) + 1
		}
	}
	*last = *a
}

// allocation reads one allocation into the slab and its index; 0 after an error. The caller links it into its list.
func (l *loader) allocation(want entryKind) uint32 {
	head := l.Byte()
	if head&^(kindBits|inHandles|counted|sameThread|sameKind) != 0 || entryKind(head&kindBits) != want {
		l.Fail("an allocation begins with %#x", head)
	}
	a := l.last
	a.kind, a.refs, a.maps = want, 1, 0
	a.key += uint64(l.Int())
	a.bytes += uint64(l.Int())
	a.since += schema.KTime(l.Int())
	if head&sameThread == 0 {
		a.thread = l.slot()
	}
	if head&sameKind == 0 {
		a.row, a.owner, a.origin = l.Byte(), l.Byte(), l.origin()
	}
	if head&counted != 0 {
		a.refs, a.maps = count(l.Below(math.MaxUint16+1)), count(l.Below(math.MaxUint16+1))
	}
	if l.Err() != nil || !l.valid(&a, head) {
		return 0
	}
	l.last = a
	i := l.slab.get()
	*l.slab.at(i) = a
	l.add(i, head&inHandles != 0)
	return i
}

// valid reports whether everything that the allocation refers to exists.
func (l *loader) valid(a *allocation, head byte) bool {
	if len(l.slots) == 0 || len(l.origins) == 0 {
		l.Fail("the first allocation refers to a previous one")
		return false
	}
	s := &l.threads.slots[a.thread].process.State
	owners := 1
	if int(a.row) < len(s.rows) {
		switch class := s.rows[a.row].class; {
		case a.kind == opened, a.kind == memory && endsWithContext(class):
			owners = len(s.contexts)
		case a.kind == memory:
			owners = max(1, len(s.pools))
		}
	}
	kept := a.refs > 0 || a.maps > 0
	mappable := head&inHandles != 0 || a.refs == 0
	if int(a.row) >= len(s.rows) || int(a.owner) >= owners || !kept || (a.maps > 0 && !mappable) ||
		(a.refs > 0 && a.key == 0) {
		l.Fail("an allocation refers to a row, owner or key that does not exist")
		return false
	}
	return true
}

// add adds an allocation to its index and to every sum.
func (l *loader) add(i uint32, handle bool) {
	a := l.slab.at(i)
	a.chain, a.prev, a.next = 0, 0, 0
	by := &l.threads.slots[a.thread]
	by.live++
	s := &by.process.State
	switch {
	case a.refs == 0:
	case handle:
		s.handles.insert(&l.slab, i)
	default:
		s.addresses.insert(&l.slab, i)
	}
	if a.maps > 0 {
		l.mapped = append(l.mapped, i)
		l.mappings = append(l.mappings, 0)
	}
	r := &s.rows[a.row]
	if a.kind == opened {
		r.holders++
		if a.owner != 0 {
			s.contexts[a.owner].live++
		}
	}
	if a.kind != memory {
		return
	}
	s.held++
	r.live.add(a.bytes)
	switch {
	case endsWithContext(r.class):
		s.contexts[a.owner].live++
	case a.owner != 0:
		s.pools[a.owner].live.add(a.bytes)
	}
	switch {
	case r.class.OnGPU():
		by.gpu.add(a.bytes)
		s.live.add(a.bytes)
		r.card.add(a.bytes)
	case r.class.OnHost():
		s.hostLive.add(a.bytes)
	}
}

func (l *loader) allocations(m *host) {
	l.sizes(&m.sizes)
	for _, p := range l.procs {
		l.holders(p)
		for range l.Each(leastAllocation) {
			if i := l.allocation(multicast); i != 0 && !l.ownedBy(p, i) {
				return
			}
		}
		l.ranges(p)
		if l.Err() != nil {
			return
		}
	}
	for k, i := range l.mapped {
		if n := l.slab.at(i).maps; n != math.MaxUint16 && int(n) != l.mappings[k] {
			l.Fail("%d mappings of an allocation, want %d", l.mappings[k], n)
			return
		}
	}
}

// ownedBy reports whether allocation i belongs to process p.
func (l *loader) ownedBy(p *proc, i uint32) bool {
	if l.threads.slots[l.slab.at(i).thread].process != p {
		l.Fail("an allocation is listed under the wrong process")
		return false
	}
	return true
}

func (l *loader) sizes(z *sizes) {
	size, last := numSizes, uint32(0)
	for range l.Each(leastAllocation) {
		i := l.allocation(memory)
		if i == 0 {
			return
		}
		a := l.slab.at(i)
		switch at := sizeOf(a.bytes); {
		case at > size:
			l.Fail("allocations are out of order")
			return
		case at < size:
			size = at
			*z.head(size) = i
		default:
			a.prev, l.slab.at(last).next = last, i
		}
		last = i
		z.count++
	}
}

func (l *loader) holders(p *proc) {
	last := uint32(0)
	for range l.Each(leastAllocation) {
		i := l.allocation(opened)
		if i == 0 || !l.ownedBy(p, i) {
			return
		}
		if last == 0 {
			p.State.newestHolder = i
		} else {
			l.slab.at(i).prev, l.slab.at(last).next = last, i
		}
		last = i
		p.State.holders++
	}
}

func (s *saver) mappings(all []mapping) {
	s.Uint(uint64(len(all)))
	var last mapping
	for _, g := range all {
		s.Uint(g.ptr - last.ptr)
		s.Uint(g.bytes)
		s.Int(int64(g.since - last.since))
		s.Uint(s.mapped[g.memory])
		last = g
	}
}

func (l *loader) ranges(p *proc) {
	var last mapping
	for i := range l.Each(4) {
		g := mapping{ptr: last.ptr + l.Uint(), bytes: l.Uint(), since: last.since + schema.KTime(l.Int())}
		if i > 0 && g.ptr < endOf(last.ptr, last.bytes) {
			l.Fail("mappings overlap")
			return
		}
		if k := l.Below(len(l.mapped) + 1); k > 0 {
			g.memory = l.mapped[k-1]
			l.mappings[k-1]++
			if !l.ownedBy(p, g.memory) {
				return
			}
		}
		p.State.mappings = append(p.State.mappings, g)
		last = g
	}
}

// slot writes a thread.
func (s *saver) slot(i uint32) {
	if n := s.slots[i]; n != 0 {
		s.Uint(n)
		return
	}
	s.slots[i] = uint64(len(s.slots)) + 1
	by := &s.threads.slots[i]
	s.Uint(0)
	s.Uint(s.procs[by.process])
	s.Uint(uint64(by.tid))
	s.String(by.comm)
}

func (l *loader) slot() uint32 {
	n := l.Below(len(l.slots) + 1)
	if n > 0 {
		return l.slots[n-1]
	}
	p := l.Below(len(l.procs))
	tid, comm := l.Uint32(), l.String()
	if l.Err() != nil {
		return 0
	}
	i := l.threads.slot(threadID{l.procs[p], tid, comm}, 0)
	l.slots = append(l.slots, i)
	return i
}

// origin writes the call that made an allocation.
func (s *saver) origin(i uint8) {
	if n := s.origins[i]; n != 0 {
		s.Uint(n)
		return
	}
	n := uint64(1)
	for _, known := range s.origins {
		n = max(n, known+1)
	}
	s.origins[i] = n
	s.Uint(0)
	ref := &s.Tracker.origins.rows[i]
	s.Bool(i >= uint8(schema.NumClasses)) // false: it shares the number of its class
	process.SaveRef(s.Writer, ref)
}

func (l *loader) origin() uint8 {
	n := l.Below(len(l.origins) + 1)
	if n > 0 {
		return l.origins[n-1]
	}
	numbered := l.Bool()
	ref := process.RestoreRef(l.Reader)
	if l.Err() != nil {
		return 0
	}
	i := uint8(ref.Class)
	if numbered {
		i = l.Tracker.origins.number(ref)
	}
	l.origins = append(l.origins, i)
	return i
}
