package leak

import (
	"math"

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

// get returns a number whose allocation is zero.
func (s *slab) get() uint32 {
	if i := s.free; i != 0 {
		a := s.at(i)
		s.free = a.next
		*a = allocation{}
		return i
	}
	s.used++
	if int(s.used/chunkLen) >= len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkLen]allocation))
	}
	return s.used
}

func (s *slab) put(i uint32) {
	s.at(i).next = s.free
	s.free = i
}
