package plot

import (
	"iter"
	"math"
	"time"
)

// Reducer keeps of a series what a picture of a given width can show: the first, least, largest and last point of each
// part of a pixel. Its memory grows with the points up to a bound by the width. Use it where points of several
// series come interleaved; Chart reduces its series itself.
type Reducer struct {
	bins  []bin
	limit int  // of bins
	shift uint // a bin is 1<<shift ns wide
	last  time.Duration
}

// farthest is the longest time from the begin of a chart: a difference of two times still is a duration.
const farthest = time.Duration(math.MaxInt64 / 4)

// bin holds the points of one part of the time.
type bin struct{ first, least, most, last Point }

// NewReducer returns a reducer for pictures of a width in pixels.
func NewReducer(width int) *Reducer {
	return &Reducer{limit: 6 * max(1, width), last: math.MinInt64}
}

// Add appends a point. A point before its predecessor is kept at its predecessor's time; a value that is not finite is
// skipped.
func (r *Reducer) Add(p Point) {
	if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
		return
	}
	p.At = max(p.At, r.last, -farthest)
	p.At = min(p.At, farthest)
	r.last = p.At
	if n := len(r.bins); n > 0 && r.bins[n-1].first.At>>r.shift == p.At>>r.shift {
		r.bins[n-1].join(bin{p, p, p, p})
		return
	}
	r.bins = append(r.bins, bin{p, p, p, p})
	for len(r.bins) > r.limit {
		r.widen()
	}
}

// widen doubles the width of bins until a quarter of the limit is free, so that few points cause it.
func (r *Reducer) widen() {
	for len(r.bins) > r.limit*3/4 {
		r.shift++
		kept := r.bins[:1]
		for _, b := range r.bins[1:] {
			if n := len(kept); kept[n-1].first.At>>r.shift == b.first.At>>r.shift {
				kept[n-1].join(b)
			} else {
				kept = append(kept, b)
			}
		}
		r.bins = kept
	}
}

// join adds a later bin to b.
func (b *bin) join(later bin) {
	if later.least.Value < b.least.Value {
		b.least = later.least
	}
	if later.most.Value > b.most.Value {
		b.most = later.most
	}
	b.last = later.last
}

// Points returns the kept points in the order of time.
func (r *Reducer) Points() iter.Seq[Point] {
	return func(yield func(Point) bool) {
		for _, b := range r.bins {
			for _, p := range b.points() {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// points returns the distinct points of a bin in the order of time.
func (b *bin) points() []Point {
	early, late := b.least, b.most
	if early.At > late.At {
		early, late = late, early
	}
	points := make([]Point, 0, 4)
	for _, p := range [4]Point{b.first, early, late, b.last} {
		if n := len(points); n == 0 || points[n-1] != p {
			points = append(points, p)
		}
	}
	return points
}
