package plot

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// stackOf returns the layers of a stack from bottom to top: the series with the largest peaks, and the sum of all
// others.
func stackOf(series []Series, width int) []curve {
	var kept []curve
	other, others := curve{step: true, ends: true}, 0
	for _, s := range series {
		c, ok := newCurve(s, width)
		if !ok {
			continue
		}
		c.step = true
		kept = append(kept, c)
		slices.SortStableFunc(kept, func(a, b curve) int { return cmp.Compare(b.peak, a.peak) })
		if len(kept) > Limit {
			others++
			other = sum(other, kept[Limit], width)
			kept = kept[:Limit]
		}
	}
	if others > 0 {
		other.name = fmt.Sprintf("other (%d)", others)
		kept = append(kept, other)
	}
	return kept
}

// sum adds two step curves.
func sum(a, b curve, width int) curve {
	r := NewReducer(width)
	m := newMerge([]curve{a, b})
	for m.next() {
		r.Add(Point{m.now, m.total()})
	}
	return r.curve("", true, a.ends && b.ends)
}

// merge walks through several step curves in the order of time.
type merge struct {
	curves []curve
	at     []int     // the next point of each curve; one more than all after its end
	values []float64 // of each curve at now; a value below zero counts as zero
	now    time.Duration
}

func newMerge(curves []curve) *merge {
	return &merge{curves: curves, at: make([]int, len(curves)), values: make([]float64, len(curves))}
}

// next goes on to the next time at which a value changes, and applies all changes of that time.
func (m *merge) next() bool {
	found := false
	for i := range m.curves {
		if t, _, ok := m.change(i); ok && (!found || t < m.now) {
			m.now, found = t, true
		}
	}
	for i := range m.curves {
		for t, v, ok := m.change(i); ok && t == m.now; t, v, ok = m.change(i) {
			m.values[i] = max(0, v)
			m.at[i]++
		}
	}
	return found
}

// change returns the next change of a curve. A curve that ends falls to zero just after its last point.
func (m *merge) change(i int) (at time.Duration, value float64, ok bool) {
	c := &m.curves[i]
	switch n := len(c.points); {
	case m.at[i] < n:
		p := c.points[m.at[i]]
		return p.At, p.Value, true
	case m.at[i] == n && n > 0 && c.ends:
		return c.points[n-1].At + 1, 0, true
	default:
		return 0, 0, false
	}
}

func (m *merge) total() (sum float64) {
	for _, v := range m.values {
		sum += v
	}
	return sum
}

// columns returns the values of each curve in each of count columns from one time to another, at the moment of the
// column's largest total.
func columns(curves []curve, from, to time.Duration, count int) [][]float64 {
	table := make([][]float64, count)
	best := make([]float64, len(curves))
	bestTotal, column := 0.0, 0
	m := newMerge(curves)
	for {
		before, carried := slices.Clone(m.values), m.total()
		more := m.next()
		target := count
		if more {
			share := float64(m.now-from) / float64(to-from)
			target = min(max(0, int(share*float64(count))), count-1)
		}
		for ; column < target; column++ {
			table[column] = slices.Clone(best)
			copy(best, before)
			bestTotal = carried
		}
		if !more {
			return table
		}
		if m.total() > bestTotal {
			copy(best, m.values)
			bestTotal = m.total()
		}
	}
}
