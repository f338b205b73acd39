package export

import (
	"slices"
)

// area is live memory of a device: a segment or a block.
type area struct {
	addr, bytes uint64
	stream      uint64 // that of a block is the one of its segment
	frame       uint32
	vmm         bool // a segment that is a part of an expandable one
	own         bool // a segment that nobody saw: it is made for a block
	known       bool // a segment that was live before the range
}

func (a *area) end() uint64 { return a.addr + a.bytes }

// areas are in the order of their addresses.
type areas []area

// from returns the index of the first area that ends behind addr.
func (l areas) from(addr uint64) int {
	i, _ := slices.BinarySearchFunc(l, addr, func(a area, addr uint64) int {
		if a.end() <= addr {
			return -1
		}
		return 1
	})
	return i
}

// at returns the index of the area that begins at addr, or -1.
func (l areas) at(addr uint64) int {
	if i := l.from(addr); i < len(l) && l[i].addr == addr {
		return i
	}
	return -1
}

// holds reports whether segments hold a block. A block may be in several neighbours of one expandable segment.
func (l areas) holds(block *area) bool {
	addr := block.addr
	for i := l.from(addr); i < len(l) && l[i].addr <= addr; i++ {
		if addr = l[i].end(); addr >= block.end() {
			return true
		}
		if !l[i].vmm {
			return false
		}
	}
	return false
}

// add joins an area with those that it overlaps or touches.
func (l *areas) add(a area) {
	i := l.from(a.addr - min(a.addr, 1))
	end := i
	for ; end < len(*l) && (*l)[end].addr <= a.end(); end++ {
		first := min(a.addr, (*l)[end].addr)
		a = area{addr: first, bytes: max(a.end(), (*l)[end].end()) - first}
	}
	*l = slices.Replace(*l, i, end, area{addr: a.addr, bytes: a.bytes})
}

// besideWhole reports whether a whole segment is a neighbour of an area that would be at index i.
func (l areas) besideWhole(i int, one *area) bool {
	return i > 0 && !l[i-1].vmm && l[i-1].end() == one.addr || i < len(l) && !l[i].vmm && l[i].addr == one.end()
}

// deviceState is the memory of one device while its actions are written. The viewer computes every moment backwards
// from the last one. It throws if a block is outside of the segments, or if it cannot undo an action:
//   - A block without a segment gets one. An area whose end was not seen ends when another one takes its place.
//   - A block that is freed and was not allocated exists from the first action on. So its place must be in segments
//     that are that old, and no other block may have been there.
//   - It undoes segment_unmap by joining the part with its neighbours, and then finds no joined neighbour to undo its
//     segment_alloc. So a part beside a whole segment has the action segment_free.
type deviceState struct {
	segments, blocks areas
	used             areas  // places of all blocks so far
	overlaps         uint64 // allocations in the place of live memory, which ends although no event frees it
	write            func(name string, a *area, at int64)
}

func (s *deviceState) apply(a *action) {
	one := area{addr: a.addr, bytes: a.bytes, stream: a.stream, frame: a.frame, vmm: a.vmm, known: a.known}
	switch a.verb {
	case segmentAlloc:
		if s.clear(&s.segments, &one, a.at, s.freeSegment) {
			s.overlaps++
		}
		s.insert(&s.segments, one)
		if !a.known {
			s.write(segmentName(one.vmm, "segment_alloc", "segment_map"), &one, a.at)
		}
	case segmentFree:
		if i := s.segments.at(a.addr); i >= 0 {
			s.freeSegment(i, a.at)
		}
	case blockAlloc:
		overlaps := s.clear(&s.blocks, &one, a.at, s.freeBlock)
		if !s.segments.holds(&one) {
			own := area{addr: one.addr, bytes: one.bytes, frame: one.frame, own: true}
			overlaps = s.clear(&s.segments, &own, a.at, s.freeSegment) || overlaps
			s.insert(&s.segments, own)
			s.write("segment_alloc", &own, a.at)
		}
		if overlaps {
			s.overlaps++
		}
		one.stream = s.segments[s.segments.from(one.addr)].stream
		s.insert(&s.blocks, one)
		s.used.add(one)
		s.write("alloc", &one, a.at)
	case blockFree:
		if i := s.blocks.at(a.addr); i >= 0 {
			s.freeBlock(i, a.at)
		} else if s.fromBefore(&one) {
			one.stream = s.segments[s.segments.from(one.addr)].stream
			s.used.add(one)
			s.writeFree(&one, a.at)
		}
	}
}

// fromBefore reports whether a block can have been live since before the range.
func (s *deviceState) fromBefore(block *area) bool {
	for i := s.segments.from(block.addr); i < len(s.segments) && s.segments[i].addr < block.end(); i++ {
		if !s.segments[i].known {
			return false
		}
	}
	i := s.used.from(block.addr)
	return s.segments.holds(block) && (i == len(s.used) || s.used[i].addr >= block.end())
}

func (s *deviceState) insert(l *areas, one area) { *l = slices.Insert(*l, l.from(one.addr), one) }

// clear frees what is in the place of an area, and reports whether there was something.
func (s *deviceState) clear(l *areas, place *area, at int64, free func(i int, at int64)) (overlaps bool) {
	for i := l.from(place.addr); i < len(*l) && (*l)[i].addr < place.end(); i = l.from(place.addr) {
		free(i, at)
		overlaps = true
	}
	return overlaps
}

func (s *deviceState) freeSegment(i int, at int64) {
	one := s.segments[i]
	s.clear(&s.blocks, &one, at, s.freeBlock)
	if i = s.segments.at(one.addr); i < 0 { // it was the block's own
		return
	}
	s.segments = slices.Delete(s.segments, i, i+1)
	part := one.vmm && !s.segments.besideWhole(i, &one)
	s.write(segmentName(part, "segment_free", "segment_unmap"), &one, at)
}

func (s *deviceState) freeBlock(i int, at int64) {
	one := s.blocks[i]
	s.blocks = slices.Delete(s.blocks, i, i+1)
	s.writeFree(&one, at)
	if i := s.segments.at(one.addr); i >= 0 && s.segments[i].own {
		s.freeSegment(i, at)
	}
}

func (s *deviceState) writeFree(one *area, at int64) {
	s.write("free_requested", one, at)
	s.write("free_completed", one, at)
}

func segmentName(isPart bool, whole, part string) string {
	if isPart {
		return part
	}
	return whole
}

// merged joins neighbours of one expandable segment.
func (l areas) merged() (list areas) {
	for _, a := range l {
		if n := len(list); n > 0 && a.vmm && list[n-1].vmm && list[n-1].end() == a.addr &&
			list[n-1].stream == a.stream {
			list[n-1].bytes += a.bytes
			continue
		}
		list = append(list, a)
	}
	return list
}
