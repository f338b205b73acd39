package trend

import "slices"

// most is the number of windows without which survivors prove nothing: two may be excluded.
const most = Kept - 2

// residue finds growth that is smaller than the fluctuation of the memory. Floors do not show it, but its survivors do:
// each window leaves as much memory that is never freed as the others. It holds if
//
//   - the medians of the older half, of the newer half and of the last quarter differ by a quarter at most; so what is
//     left does not shrink with age, as a cache does whose entries are replaced at random,
//   - the level rises at least three quarters as fast, by the Theil–Sen slope of the minima. So a cache that replaces
//     its oldest entries is no growth.
//
// It returns bytes per window.
func (s *Series) residue(f *floors) (perWindow float64, holds bool) {
	var left [Kept]uint64
	quarter := f.n / 4
	old := f.n - quarter
	for k := range f.n {
		if w := f.window[k]; w <= s.current {
			left[k] = s.births[w%slots]
		}
	}
	all := medianOf(left[:f.n])
	older, newer, last := medianOf(left[:old/2]), medianOf(left[old/2:old]), medianOf(left[old:f.n])
	if f.n < most || all == 0 || 4*min(older, newer, last) < 3*max(older, newer, min(last, newer)) {
		return 0, false
	}
	return float64(all), 4*s.slope(f) >= 3*float64(all)
}

// slope returns the median of the slopes of all pairs of minima, in bytes per window.
func (s *Series) slope(f *floors) float64 {
	var slopes [Kept * (Kept - 1) / 2]float64
	pairs := 0
	for j := range f.n {
		to, _ := s.minimum(f.window[j])
		for i := range j {
			from, _ := s.minimum(f.window[i])
			slopes[pairs] = float64(int64(to-from)) / float64(f.window[j]-f.window[i])
			pairs++
		}
	}
	all := slopes[:pairs]
	slices.Sort(all)
	return (all[(pairs-1)/2] + all[pairs/2]) / 2
}

// medianOf returns the median, or the lower one of two.
func medianOf(values []uint64) uint64 {
	var sorted [Kept]uint64
	n := copy(sorted[:], values)
	slices.Sort(sorted[:n])
	return sorted[(n-1)/2]
}
