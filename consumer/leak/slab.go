package leak

import (
	"math"

	"github.com/gputap/gputap/schema"
)

// allocation is one piece of live memory, or what a process holds without owning memory. 48 bytes
// without a pointer: the garbage collector does not walk the table, and a process holds millions of
// them.
type allocation struct {
	key    uint64       // address, or handle of physical memory
	bytes  uint64       // of what was opened: the token, for it has no bytes
	since  schema.KTime // return of the call that made it
	chain  uint32       // next in its index's bucket
	prev   uint32       // neighbours in its size class, or among its process's holders
	next   uint32
	thread uint32 // slot of the thread that made it
	maps   count  // mappings of the physical memory
	refs   count  // times that its key must be freed, released or closed; 0: the key names it no more
	kind   entryKind
	row    uint8 // index into its process's rows
	origin uint8 // index into origins: the call that made it
	owner  uint8 // of its process's contexts; of class pool, of its pools; 0 unknown, or none
}

// what an entry of the slab is.
type entryKind uint8

const (
	memory    entryKind = iota
	opened              // memory that is counted where it was made: a holder
	multicast           // an object that memory is bound to
)

// count stays at its limit once it is there: what is referred to that often lives until its process
// ends.
type count uint16

func (c *count) up() {
	if *c != math.MaxUint16 {
		*c++
	}
}

// down reports whether none is left.
func (c *count) down() bool {
	if *c != math.MaxUint16 && *c > 0 {
		*c--
	}
	return *c == 0
}

const chunkLen = 1 << 12

// slab hands out allocations by number; 0 is none. Memory once grown is kept for the next ones.
type slab struct {
	chunks []*[chunkLen]allocation
	used   uint32 // numbers handed out so far, with those given back
	free   uint32 // first of those given back, linked by next
}

func (s *slab) at(i uint32) *allocation { return &s.chunks[i/chunkLen][i%chunkLen] }

// take gives a number whose allocation is zero.
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
