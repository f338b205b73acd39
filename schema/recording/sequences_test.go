package recording

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSequences compares the set with a map, for numbers in order, in reverse, in any order, and with gaps.
func TestSequences(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for name, next := range map[string]func(i int) uint64{
		"in order":   func(i int) uint64 { return uint64(i) + 5 },
		"in reverse": func(i int) uint64 { return 1000 - uint64(i) },
		"with gaps":  func(i int) uint64 { return uint64(i)*3 + 1 },
		"any":        func(int) uint64 { return random.Uint64N(600) },
		"the ends":   func(i int) uint64 { return math.MaxUint64 - uint64(i%3) },
		"from 0":     func(i int) uint64 { return uint64(i % 40) },
	} {
		var s Sequences
		want, low, high := map[uint64]bool{}, uint64(math.MaxUint64), uint64(0)
		for i := range 500 {
			n := next(i)
			if got := s.Add(n); got == want[n] {
				t.Fatalf("%s: %d is new: %t", name, n, got)
			}
			want[n], low, high = true, min(low, n), max(high, n)
			if got := high - low + 1 - uint64(len(want)); s.Absent() != got {
				t.Fatalf("%s: %d absent, want %d", name, s.Absent(), got)
			}
		}
		if name == "in order" && len(s.ranges) != 1 {
			t.Errorf("%s: %d ranges", name, len(s.ranges))
		}
	}
}
