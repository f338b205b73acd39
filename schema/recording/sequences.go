package recording

import "slices"

// Sequences is a set of numbers. It takes 16 bytes for each gap between them.
type Sequences struct{ ranges []span }

// span is the numbers from first to last.
type span struct{ first, last uint64 }

// Add adds a number. It returns false if the set has the number.
func (s *Sequences) Add(n uint64) bool {
	at, _ := slices.BinarySearchFunc(s.ranges, n, func(r span, n uint64) int {
		if r.last < n {
			return -1
		}
		return 1
	}) // the first range that does not end before n
	if at < len(s.ranges) && s.ranges[at].first <= n {
		return false
	}
	after := at > 0 && s.ranges[at-1].last+1 == n
	before := at < len(s.ranges) && n+1 == s.ranges[at].first
	switch {
	case after && before:
		s.ranges[at-1].last = s.ranges[at].last
		s.ranges = slices.Delete(s.ranges, at, at+1)
	case after:
		s.ranges[at-1].last = n
	case before:
		s.ranges[at].first = n
	default:
		s.ranges = slices.Insert(s.ranges, at, span{n, n})
	}
	return true
}

// Absent returns how many numbers between the lowest and the highest one the set does not have.
func (s *Sequences) Absent() (n uint64) {
	for i := 1; i < len(s.ranges); i++ {
		n += s.ranges[i].first - s.ranges[i-1].last - 1
	}
	return n
}
