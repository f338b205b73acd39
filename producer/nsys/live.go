package nsys

import "github.com/gputap/gputap/schema"

// live has the bytes of the live allocations. It only finds what does not fit: folds count the memory.
type live map[place]uint64

// place identifies a live allocation: an address means something only within its process.
type place struct {
	pid     uint32
	address uint64
}

// see takes a memory event and counts what does not fit.
func (l live) see(at place, op schema.Op, bytes uint64, s *Summary) {
	before, known := l[at]
	if op == schema.OpAlloc {
		if known {
			s.Reallocations++
		}
		l[at] = bytes
		return
	}
	switch {
	case at.address == 0: // a free of 0 is a no-op
	case !known:
		s.UnmatchedFrees++
	case bytes != 0 && bytes != before:
		s.SizeMismatches++
	}
	delete(l, at)
}
