package leak

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/gputap/gputap/schema"
)

// allocation is one piece of live memory, or a holder or object without memory. It has 48 bytes and no pointers, so
// the garbage collector skips the table: a process may have millions of allocations.
type allocation struct {
	key    uint64       // address, or handle of physical memory
	bytes  uint64       // of a holder: its token, because a holder has no bytes
	since  schema.KTime // return time of the call that made it
	chain  uint32       // next in its index's bucket
	prev   uint32       // neighbours in its size class, or among its process's holders
	next   uint32
	thread uint32 // slot of the thread that made it
	maps   count  // mappings of the physical memory
	refs   count  // how often its key must be freed, released or closed; 0: the key no longer names it
	kind   entryKind
	row    uint8 // index into its process's rows
	origin uint8 // the call that made it: index into origins
	owner  uint8 // index into its process's contexts, or pools for class pool; 0: unknown or none
}

// entryKind is the meaning of an entry of the slab.
type entryKind uint8

const (
	memory    entryKind = iota
	opened              // a holder: its memory is counted where it was allocated
	multicast           // an object that memory is bound to
	unused              // a free entry of the slab
)

// count is a saturating counter. At its limit it no longer changes, so that memory lives until its process ends.
type count uint16

func (c *count) up() {
	if *c != math.MaxUint16 {
		*c++
	}
}

// down decrements the counter and reports whether it is 0.
func (c *count) down() bool {
	if *c != math.MaxUint16 && *c > 0 {
		*c--
	}
	return *c == 0
}

const chunkLen = 1 << 12

// slab stores allocations by number; 0 means no allocation. It reuses its memory and never returns it.
type slab struct {
	chunks []*[chunkLen]allocation
	used   uint32 // highest number in use so far
	free   uint32 // first number of the free list, linked by next
}

func (s *slab) at(i uint32) *allocation { return &s.chunks[i/chunkLen][i%chunkLen] }

// entry is an allocation with its number. The number of the zero entry is 0: no allocation.
type entry struct {
	*allocation
	number uint32
}

func (s *slab) entry(i uint32) entry {
	if i == 0 {
		return entry{}
	}
	return entry{s.at(i), i}
}

// get returns an entry whose allocation is zero.
func (s *slab) get() entry {
	if i := s.free; i != 0 {
		e := s.entry(i)
		s.free = e.next
		*e.allocation = allocation{}
		return e
	}
	s.used++
	if int(s.used/chunkLen) >= len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkLen]allocation))
	}
	return s.entry(s.used)
}

func (s *slab) put(e entry) {
	e.next, e.kind = s.free, unused
	s.free = e.number
}

// unmap removes a mapping of memory and reports whether nothing keeps the memory any longer.
func (s *slab) unmap(memory uint32) bool {
	if memory == 0 {
		return false
	}
	a := s.at(memory)
	return a.maps.down() && a.refs == 0
}

// link puts an entry at the front of the list with this head. An entry is in one list at most.
func (s *slab) link(head *uint32, e entry) {
	e.prev, e.next = 0, *head
	if *head != 0 {
		s.at(*head).prev = e.number
	}
	*head = e.number
}

func (s *slab) unlink(head *uint32, a *allocation) {
	if a.prev != 0 {
		s.at(a.prev).next = a.next
	} else {
		*head = a.next
	}
	if a.next != 0 {
		s.at(a.next).prev = a.prev
	}
}

// list appends the entries of a list to all, from the front.
func (s *slab) list(all []uint32, head uint32) []uint32 {
	for ; head != 0; head = s.at(head).next {
		all = append(all, head)
	}
	return all
}

// numSizes is the number of size classes, eight per power of two: allocations of one class differ by less than an
// eighth.
const numSizes = 62 * 8

func sizeOf(bytes uint64) int {
	if bytes < 8 {
		return int(bytes)
	}
	octave := bits.Len64(bytes) - 1
	return (octave-2)*8 + int(bytes>>(octave-3)&7)
}

// sizes are the heads of the lists of one host's live allocations by size class, the newest first. It grows on demand.
type sizes []uint32

// of returns the list of allocations of this size.
func (z *sizes) of(bytes uint64) *uint32 {
	size := sizeOf(bytes)
	if missing := size + 1 - len(*z); missing > 0 {
		*z = append(*z, make([]uint32, missing)...)
	}
	return &(*z)[size]
}

// index finds the allocations of one process by key. A bucket is the head of a chain through the slab: 4 bytes per
// allocation, where a Go map needs 20 to 40. The index grows by linear hashing, one bucket per insertion, so that no
// batch waits while a table of millions is rebuilt.
//
// The default hash spreads the regular addresses that allocators return. A program that chooses addresses of one
// bucket makes the index switch to a hash with a random seed. Neither state nor reports depend on the order of
// buckets.
type index struct {
	heads []uint32
	count int
	seed  uint64 // of the second hash; 0 while no chain was too long
}

// maxChain is the chain length that triggers the second hash. Chains of ten are rare among a million keys.
const maxChain = 24

// bucket returns the bucket of key among n buckets: the low bits of its hash, one bit fewer if that bucket does not
// exist yet.
func (x *index) bucket(key uint64, n int) uint32 {
	hash := uint32(key * 0x9E3779B97F4A7C15 >> 32)
	if x.seed != 0 {
		upper, lower := bits.Mul64(key, x.seed)
		hash = uint32(upper ^ lower>>32)
	}
	mask := uint32(1)<<bits.Len32(uint32(n-1)) - 1
	if b := hash & mask; b < uint32(n) {
		return b
	}
	return hash & (mask >> 1)
}

// find returns the live allocation at key, or none.
func (x *index) find(s *slab, key uint64) entry {
	if x.count == 0 {
		return entry{}
	}
	i := x.heads[x.bucket(key, len(x.heads))]
	for length := 0; i != 0; length++ {
		a := s.at(i)
		if a.key == key {
			return entry{a, i}
		}
		i = a.chain
		if length == maxChain && x.seed == 0 {
			x.rehash(s)
			return x.find(s, key)
		}
	}
	return entry{}
}

// rehash switches to the second hash.
func (x *index) rehash(s *slab) {
	x.seed = rand.Uint64() | 1<<63 | 1
	all := index{heads: x.heads}
	x.heads, x.count = make([]uint32, len(x.heads)), 0
	all.sweep(s, func(e entry) bool {
		x.insert(s, e)
		return true
	})
}

// insert adds an allocation. Its key must be new.
func (x *index) insert(s *slab, e entry) {
	if x.count >= len(x.heads) {
		x.split(s)
	}
	head := &x.heads[x.bucket(e.key, len(x.heads))]
	e.chain, *head = *head, e.number
	x.count++
}

// split adds a bucket and moves the allocations that belong there.
func (x *index) split(s *slab) {
	added := len(x.heads)
	x.heads = append(x.heads, 0)
	if added == 0 {
		return
	}
	mask := uint32(1)<<bits.Len32(uint32(added)) - 1
	link := &x.heads[uint32(added)&(mask>>1)]
	for *link != 0 {
		a := s.at(*link)
		if x.bucket(a.key, added+1) != uint32(added) {
			link = &a.chain
			continue
		}
		i := *link
		*link = a.chain
		a.chain, x.heads[added] = x.heads[added], i
	}
}

// remove removes an allocation, which must be in the index.
func (x *index) remove(s *slab, e entry) {
	link := &x.heads[x.bucket(e.key, len(x.heads))]
	for *link != e.number {
		link = &s.at(*link).chain
	}
	*link = e.chain
	x.count--
}

// sweep removes the allocations for which gone returns true. gone may reclaim them.
func (x *index) sweep(s *slab, gone func(entry) bool) {
	for b := range x.heads {
		for link := &x.heads[b]; *link != 0; {
			e := s.entry(*link)
			next := e.chain
			if gone(e) {
				*link = next
				x.count--
				continue
			}
			link = &e.chain
		}
	}
}
