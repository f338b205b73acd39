package leak

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
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
	usualAllocation = 18 // bytes, for the first size of the buffer
)

// allocations passes over live memory by size class, the largest and newest first. Then it passes for each process
// over its holders, the newest first, its multicast objects and its mappings.
func (c *coder) allocations(m *host) {
	c.live(m)
	for _, p := range c.table.Of(m.id) {
		s := &p.State
		holders, objects := c.slab.list(nil, s.newestHolder), c.multicasts(s)
		c.entries(&holders, opened, p)
		c.entries(&objects, multicast, p)
		if c.Reading() {
			for _, i := range slices.Backward(holders) {
				c.slab.link(&s.newestHolder, c.slab.entry(i))
			}
		}
		c.mappings(p)
	}
	if !c.Reading() {
		return
	}
	for _, i := range c.mapped.all {
		if n := c.slab.at(i).maps; int(n) != c.found[i] {
			c.Fail("%d mappings of an allocation, want %d", c.found[i], n)
		}
	}
}

// live passes over live memory, in one pass over the lists: an entry is seldom in a CPU cache.
func (c *coder) live(m *host) {
	if c.Reading() {
		c.restoreLive(m)
		return
	}
	c.Writer.Uint(uint64(m.live))
	c.Writer.Grow(m.live * usualAllocation)
	read := uint32(0)
	for _, i := range slices.Backward(m.sizes) {
		for i != 0 {
			next := c.slab.at(i).next
			read += c.slab.at(next).prev // begins to load it; 0 is an unused entry
			c.allocation(&i, memory)
			i = next
		}
	}
	c.in.sink = read
}

// restoreLive puts each allocation at the end of its list.
func (c *coder) restoreLive(m *host) {
	last := uint32(0)
	for range c.Reader.Each(leastAllocation) {
		var i uint32
		if c.allocation(&i, memory); c.Failed() {
			return
		}
		a := c.slab.at(i)
		switch head := m.sizes.of(a.bytes); {
		case *head == 0:
			*head = i
		case sizeOf(c.slab.at(last).bytes) != sizeOf(a.bytes):
			c.Fail("allocations are out of order")
			return
		default:
			a.prev, c.slab.at(last).next = last, i
		}
		last = i
		m.live++
	}
}

// entries passes over entries of one kind, all of process p. No restored entry is 0.
func (c *coder) entries(all *[]uint32, kind entryKind, p *proc) {
	snapshot.List(c.Codec, all, leastAllocation, func(i *uint32) {
		c.allocation(i, kind)
		c.mustBelong(p, *i)
	})
	if c.Failed() {
		*all = nil
	}
}

func (c *coder) mustBelong(p *proc, i uint32) {
	if c.Reading() && i != 0 && c.threads.slots[c.slab.at(i).thread].process != p {
		c.Fail("an allocation is listed under the wrong process")
	}
}

// multicasts returns a process's multicast objects: first those with a handle, sorted by handle, then those kept only
// by mappings.
func (c *coder) multicasts(s *state) (all []uint32) {
	for _, i := range s.handles.heads {
		for ; i != 0; i = c.slab.at(i).chain {
			if c.slab.at(i).kind == multicast {
				all = append(all, i)
			}
		}
	}
	slices.SortFunc(all, func(a, b uint32) int { return cmp.Compare(c.slab.at(a).key, c.slab.at(b).key) })
	for _, g := range s.mappings {
		if g.memory == 0 || slices.Contains(all, g.memory) {
			continue
		}
		if a := c.slab.at(g.memory); a.kind == multicast && a.refs == 0 {
			all = append(all, g.memory)
		}
	}
	return all
}

// allocation passes over one entry of the slab. When reading, it adds the entry to its index and to every sum, but not
// to a list; the number is 0 after an error.
func (c *coder) allocation(i *uint32, kind entryKind) {
	a, head := c.last, byte(kind)
	if !c.Reading() {
		a = *c.slab.at(*i)
		head |= c.head(*i, &a)
	}
	c.Byte(&head)
	if c.Reading() {
		if head&^(kindBits|inHandles|counted|sameThread|sameKind) != 0 || entryKind(head&kindBits) != kind {
			c.Fail("an allocation begins with %#x", head)
		}
		a.kind, a.refs, a.maps = kind, 1, 0
	}
	difference(c.Codec, &a.key, c.last.key)
	difference(c.Codec, &a.bytes, c.last.bytes)
	difference(c.Codec, &a.since, c.last.since)
	if head&sameThread == 0 {
		c.slot(&a.thread)
	}
	if head&sameKind == 0 {
		c.Byte(&a.row, &a.owner)
		c.origin(&a.origin)
	}
	if head&counted != 0 {
		snapshot.Uint(c.Codec, &a.refs, &a.maps)
	}
	if c.Reading() {
		if c.Failed() || !c.valid(&a, head) {
			return
		}
		e := c.slab.get()
		*i, *e.allocation = e.number, a
		c.add(e, head&inHandles != 0)
	}
	if a.maps > 0 {
		c.mapped.add(*i)
	}
	c.last = a
}

// head returns the bits of an allocation that is written.
func (c *coder) head(i uint32, a *allocation) (bits byte) {
	handles := &c.threads.slots[a.thread].process.State.handles
	if a.refs > 0 && handles.count > 0 && handles.find(&c.slab, a.key).number == i {
		bits |= inHandles
	}
	if a.refs != 1 || a.maps != 0 {
		bits |= counted
	}
	if len(c.slots.all) == 0 {
		return bits // the first allocation
	}
	if a.thread == c.last.thread {
		bits |= sameThread
	}
	if a.row == c.last.row && a.origin == c.last.origin && a.owner == c.last.owner {
		bits |= sameKind
	}
	return bits
}

// difference passes over v as a difference to the last value.
func difference[T ~uint64](c *snapshot.Codec, v *T, last T) {
	if c.Reading() {
		*v = last + T(c.Reader.Int())
		return
	}
	c.Writer.Int(int64(*v - last))
}

// valid reports whether everything that the allocation refers to exists.
func (c *coder) valid(a *allocation, head byte) bool {
	if len(c.slots.all) == 0 || len(c.origins.all) == 0 {
		c.Fail("the first allocation refers to a previous one")
		return false
	}
	s := &c.threads.slots[a.thread].process.State
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
		c.Fail("an allocation refers to a row, owner or key that does not exist")
		return false
	}
	return true
}

// add adds a restored allocation to its index and to every sum.
func (c *coder) add(e entry, handle bool) {
	e.chain, e.prev, e.next = 0, 0, 0
	by := &c.threads.slots[e.thread]
	s := &by.process.State
	switch {
	case e.refs == 0:
	case handle:
		s.handles.insert(&c.slab, e)
	default:
		s.addresses.insert(&c.slab, e)
	}
	s.count(e.allocation, by, 1)
	c.restoreTrend(s, e.allocation)
}

func (c *coder) mappings(p *proc) {
	var last mapping
	snapshot.List(c.Codec, &p.State.mappings, 4, func(g *mapping) {
		gap := g.ptr - last.ptr
		snapshot.Uint(c.Codec, &gap, &g.bytes)
		g.ptr = last.ptr + gap
		difference(c.Codec, &g.since, last.since)
		c.mapped.codeKnown(c.Codec, &g.memory)
		if c.Reading() {
			if len(p.State.mappings) > 1 && g.ptr < endOf(last.ptr, last.bytes) {
				c.Fail("mappings overlap")
			}
			c.mustBelong(p, g.memory)
			c.found[g.memory]++
		}
		last = *g
	})
}

// slot passes over a thread: its number, or 0 and the thread itself when the section names it first.
func (c *coder) slot(i *uint32) {
	if c.slots.codeKnown(c.Codec, i) {
		return
	}
	var by threadID
	if !c.Reading() {
		by = c.threads.slots[*i].threadID
	}
	c.procs.code(c.Codec, &by.process)
	snapshot.Uint(c.Codec, &by.tid)
	if c.String(&by.comm); c.Failed() {
		return
	}
	if c.Reading() {
		*i = c.threads.slot(by, 0)
	}
	c.slots.add(*i)
}

// origin passes over the call that made an allocation, as slot does with threads.
func (c *coder) origin(i *uint8) {
	if c.origins.codeKnown(c.Codec, i) {
		return
	}
	var ref schema.CallRef
	numbered := *i > 0
	if !c.Reading() {
		ref = c.Tracker.origins.rows[*i]
	}
	c.Bool(&numbered)
	if process.CodeRef(c.Codec, &ref); c.Failed() {
		return
	}
	if c.Reading() && numbered {
		*i = c.Tracker.origins.number(ref)
	}
	c.origins.add(*i)
}

// refs numbers objects in the order in which a section names them.
type refs[T comparable] struct {
	numbers map[T]int // from 0 on
	all     []T
	dense   func(T) int // of T that are small indexes; such a T is numbered in a list, which is faster than a map
	list    []int32     // by dense: 1 + number
}

func (r *refs[T]) add(v T) {
	r.all = append(r.all, v)
	if r.dense != nil {
		i := r.dense(v)
		r.list = append(r.list, make([]int32, max(0, i+1-len(r.list)))...)
		r.list[i] = int32(len(r.all))
		return
	}
	if r.numbers == nil {
		r.numbers = map[T]int{}
	}
	r.numbers[v] = len(r.all) - 1
}

// number returns the number of v, or -1.
func (r *refs[T]) number(v T) int {
	if r.dense == nil {
		if n, known := r.numbers[v]; known {
			return n
		}
		return -1
	}
	if i := r.dense(v); i < len(r.list) {
		return int(r.list[i]) - 1
	}
	return -1
}

// code passes over v, which has a number.
func (r *refs[T]) code(c *snapshot.Codec, v *T) {
	n := max(0, r.number(*v)) // when reading, v has none yet
	if c.Below(&n, len(r.all)); !c.Failed() {
		*v = r.all[n]
	}
}

// codeKnown passes over 1 plus the number of v, or 0 if it has none. It reports whether v has a number. Reading 0
// leaves v alone.
func (r *refs[T]) codeKnown(c *snapshot.Codec, v *T) bool {
	n := 0
	if !c.Reading() {
		n = 1 + r.number(*v)
	}
	if c.Below(&n, 1+len(r.all)); n > 0 {
		*v = r.all[n-1]
	}
	return n > 0
}

// codeOptional passes over 0 for a zero v, 1 for another v without a number, and otherwise 2 plus its number. It
// reports whether v is another one without a number. Reading 0 or 1 leaves v zero.
func (r *refs[T]) codeOptional(c *snapshot.Codec, v *T) (other bool) {
	n, zero := 0, *new(T)
	if *v != zero {
		n = 2 + r.number(*v)
	}
	if c.Below(&n, 2+len(r.all)); n > 1 {
		*v = r.all[n-2]
	}
	return n == 1
}
