package plot

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// curve is a series after its reduction.
type curve struct {
	name       string
	step, ends bool
	points     []Point // in the order of time, at least one
	peak       float64 // the largest value
	mark       *Mark   // nil: none
}

// content is what a chart draws.
type content struct {
	curves  []curve // in the order of a stack from bottom to top, or in the order of Chart.Series
	overlay []curve
	from    time.Duration
	to      time.Duration // after from
	omitted []string      // remarks about series that are not drawn
}

// collect reads the points of a chart for a picture of a width.
func collect(c Chart, width int) content {
	var k content
	if c.Stacked {
		k.curves = stackOf(c.Series, width)
	} else {
		k.curves = k.largest(c.Series, width, nil)
	}
	k.from, k.to = span(k.curves, 0, c.Length)
	margin := (k.to - k.from) / 20
	if len(k.curves) == 0 && c.Length == 0 {
		k.overlay = k.largest(c.Overlay, width, nil)
		k.from, k.to = span(k.overlay, 0, 0)
	} else {
		window := func(s Series) Series { return cut(s, k.from-margin, k.to+margin) }
		k.overlay = k.largest(c.Overlay, width, window)
		k.from, k.to = span(k.overlay, k.from, k.to)
	}
	switch {
	case k.to == k.from:
		k.to += time.Second
	case k.holds():
		k.to += (k.to-k.from)/40 + 1
	}
	return k
}

// holds reports whether a curve keeps the value of its last point, but the axis ends there: the value has no width.
func (k *content) holds() bool {
	return slices.ContainsFunc(slices.Concat(k.curves, k.overlay), func(c curve) bool {
		last := c.points[len(c.points)-1]
		return last.At == k.to && (c.step && !c.ends && last.Value != 0 || len(c.points) == 1)
	})
}

// span returns the time of curves, at least from and to.
func span(curves []curve, from, to time.Duration) (time.Duration, time.Duration) {
	for _, c := range curves {
		from = min(from, c.points[0].At)
		to = max(to, c.points[len(c.points)-1].At)
	}
	return from, to
}

// largest returns the curves with the largest peaks in the order of series. Others are remarked in k.omitted.
func (k *content) largest(series []Series, width int, change func(Series) Series) []curve {
	type numbered struct {
		curve
		number int
	}
	var kept []numbered
	omitted := 0
	for i, s := range series {
		if change != nil {
			s = change(s)
		}
		c, ok := newCurve(s, width)
		if !ok {
			continue
		}
		kept = append(kept, numbered{c, i})
		if len(kept) > Limit {
			smallest := slices.MinFunc(kept, func(a, b numbered) int {
				return cmp.Or(cmp.Compare(a.peak, b.peak), cmp.Compare(b.number, a.number))
			})
			kept = slices.DeleteFunc(kept, func(n numbered) bool { return n.number == smallest.number })
			omitted++
		}
	}
	if omitted > 0 {
		k.omitted = append(k.omitted, fmt.Sprintf("The %d of %d lines with the largest peaks are drawn.",
			len(kept), len(kept)+omitted))
	}
	var curves []curve
	for _, n := range kept {
		curves = append(curves, n.curve)
	}
	return curves
}

// newCurve reduces a series. A series without points is none.
func newCurve(s Series, width int) (curve, bool) {
	if s.Points == nil {
		return curve{}, false
	}
	r := NewReducer(width)
	for p := range s.Points {
		r.Add(p)
	}
	c := r.curve(s.Name, s.Step, s.Ends)
	if len(c.points) == 0 {
		return c, false
	}
	c.ends = c.ends || c.step && c.points[len(c.points)-1].Value == 0
	if most := r.most(); s.Mark != "" && most.Value > 0 {
		c.mark = &Mark{most.At, most.Value, s.Mark}
	}
	return c, true
}

// curve returns what the reducer kept.
func (r *Reducer) curve(name string, step, ends bool) curve {
	return curve{name: name, step: step, ends: ends, points: slices.Collect(r.Points()), peak: r.most().Value}
}

// most returns the first of the points with the largest value.
func (r *Reducer) most() Point {
	most := Point{Value: math.Inf(-1)}
	for _, b := range r.bins {
		if b.most.Value > most.Value {
			most = b.most
		}
	}
	return most
}

// at returns the value at a time: that of a step, or between two points of a line. Before its first point, and after
// its end, a curve has none.
func (c curve) at(t time.Duration) (value float64, ok bool) {
	next, _ := slices.BinarySearchFunc(c.points, t, func(p Point, t time.Duration) int {
		if p.At <= t {
			return -1
		}
		return 1
	})
	switch {
	case next == 0:
		return 0, false
	case next == len(c.points):
		last := c.points[next-1]
		return last.Value, last.At == t || c.step && !c.ends
	case c.step:
		return c.points[next-1].Value, true
	default:
		return between(c.points[next-1], c.points[next], t), true
	}
}

// between returns the value at a time on the straight line between two points of different times.
func between(a, b Point, t time.Duration) float64 {
	return a.Value + (b.Value-a.Value)*float64(t-a.At)/float64(b.At-a.At)
}

// cut returns the part of a series between two times. Its value on entering becomes its first point, and a straight
// line ends at the last time.
func cut(s Series, from, to time.Duration) Series {
	if points := s.Points; points != nil {
		s.Points = cutPoints(points, s.Step, from, to)
	}
	return s
}

func cutPoints(points iter.Seq[Point], step bool, from, to time.Duration) iter.Seq[Point] {
	return func(yield func(Point) bool) {
		var last Point
		known := false
		for p := range points {
			if p.At >= from && known && last.At < from {
				entry := Point{from, last.Value}
				if !step {
					entry.Value = between(last, p, from)
				}
				if !yield(entry) {
					return
				}
			}
			if p.At > to {
				if known && !step && last.At >= from {
					yield(Point{to, between(last, p, to)})
				}
				return
			}
			if p.At >= from && !yield(p) {
				return
			}
			last, known = p, true
		}
	}
}
