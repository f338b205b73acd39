package leak

import "math/bits"

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

// sizes lists the live allocations of one host by size class, the newest first.
type sizes struct {
	heads []uint32 // by size class; grows on demand
	count int
}

func (z *sizes) link(s *slab, i uint32) {
	a := s.at(i)
	z.count++
	head := z.head(sizeOf(a.bytes))
	a.prev, a.next = 0, *head
	if *head != 0 {
		s.at(*head).prev = i
	}
	*head = i
}

// head returns the head of a size class.
func (z *sizes) head(size int) *uint32 {
	if missing := size + 1 - len(z.heads); missing > 0 {
		z.heads = append(z.heads, make([]uint32, missing)...)
	}
	return &z.heads[size]
}

func (z *sizes) unlink(s *slab, i uint32) {
	z.count--
	a := s.at(i)
	if a.prev != 0 {
		s.at(a.prev).next = a.next
	} else {
		z.heads[sizeOf(a.bytes)] = a.next
	}
	if a.next != 0 {
		s.at(a.next).prev = a.prev
	}
}
