package plot

import (
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

// layer returns the fill of the i-th area of a stack, counted from the bottom. The sum of the others is the last fill.
func (s *sheet) layer(i int) canvas.Fill {
	fill := layers[i]
	fill.Ink = darker(fill.Color)
	fill.Period = max(6, int(math.Round(s.letter/2)))
	return fill
}

// drawStack draws the areas from the top of the stack to its bottom. Each covers the lower part of the one before. A
// column is as wide as a line, so that a peak of a moment can be seen.
func (s *sheet) drawStack() {
	count := max(1, int((s.right-s.left)/s.pen))
	table := columns(s.curves, s.from, s.to, count)
	for i := len(s.curves) - 1; i >= 0; i-- {
		tops := make([]float64, count)
		for column, values := range table {
			total := 0.0
			for _, v := range values[:i+1] {
				total += v
			}
			tops[column] = math.Round(s.y(total))
			if values[i] > 0 { // at least one pixel
				tops[column] = min(tops[column], math.Round(s.y(total-values[i]))-1)
			}
		}
		fill := s.layer(i)
		for _, area := range s.areas(tops, 0) {
			s.on.Polygon(area, canvas.Fill{Color: fill.Ink})
		}
		for _, area := range s.areas(tops, 1) {
			s.on.Polygon(area, fill)
		}
	}
}

// areas returns the areas between the tops of columns, lowered by some pixels, and the bottom.
func (s *sheet) areas(tops []float64, lowered float64) (areas [][]canvas.Point) {
	var area []canvas.Point
	edge := func(column int) float64 {
		return math.Round(s.left + float64(column)*(s.right-s.left)/float64(len(tops)))
	}
	for column, top := range tops {
		top = min(top+lowered, s.bottom)
		left, right := edge(column), edge(column+1)
		if top == s.bottom {
			areas, area = closed(areas, area, left, s.bottom), nil
			continue
		}
		if area == nil {
			area = []canvas.Point{{X: left, Y: s.bottom}}
		}
		if n := len(area); n > 1 && area[n-1].Y == top {
			area[n-1].X = right
			continue
		}
		area = append(area, canvas.Point{X: left, Y: top}, canvas.Point{X: right, Y: top})
	}
	return closed(areas, area, s.right, s.bottom)
}

func closed(areas [][]canvas.Point, area []canvas.Point, x, y float64) [][]canvas.Point {
	if area == nil {
		return areas
	}
	return append(areas, append(area, canvas.Point{X: x, Y: y}))
}

// drawLines draws each curve, the first one on top, and then the markers of all.
func (s *sheet) drawLines() {
	for i, c := range slices.Backward(s.curves) {
		s.on.Polyline(s.path(c), canvas.Stroke{Color: lines[i], Width: s.pen})
		if len(c.points) == 1 {
			s.marker(i, s.place(c.points[0]))
		}
	}
	if len(s.curves) < 2 {
		return
	}
	apart := 10 * s.letter
	for i, c := range s.curves {
		for x := s.left + apart*(0.5+float64(i))/float64(len(s.curves)); x < s.right; x += apart {
			at := s.from + time.Duration((x-s.left)/(s.right-s.left)*float64(s.to-s.from))
			if v, ok := c.at(at); ok {
				s.marker(i, canvas.Point{X: math.Round(x), Y: math.Round(s.y(v))})
			}
		}
	}
}

// drawOverlay draws dashes on white, so that they show on areas of any color.
func (s *sheet) drawOverlay() {
	for i, c := range s.overlay {
		path := s.path(c)
		s.on.Polyline(path, canvas.Stroke{Color: white, Width: s.pen})
		s.on.Polyline(path, s.dashed(i))
		if len(c.points) == 1 {
			s.drawShape(circle, s.place(c.points[0]), s.letter/4, black)
		}
	}
}

func (s *sheet) dashed(i int) canvas.Stroke {
	stroke := canvas.Stroke{Color: overlays[i].Color, Width: s.pen}
	for _, length := range overlays[i].Dash {
		stroke.Dash = append(stroke.Dash, length*s.pen)
	}
	return stroke
}

// place returns the pixel of a point.
func (s *sheet) place(p Point) canvas.Point {
	return canvas.Point{X: math.Round(s.x(p.At)), Y: math.Round(s.y(p.Value))}
}

// path returns the line of a curve. Of the points in one column of pixels, it keeps the first, least, largest and last.
func (s *sheet) path(c curve) (path []canvas.Point) {
	for i := 0; i < len(c.points); {
		first := s.place(c.points[i])
		if n := len(path); c.step && n > 0 {
			path = append(path, canvas.Point{X: first.X, Y: path[n-1].Y})
		}
		highest, lowest, last := first, first, first
		for ; i < len(c.points); i++ {
			next := s.place(c.points[i])
			if next.X != first.X {
				break
			}
			highest.Y, lowest.Y, last = min(highest.Y, next.Y), max(lowest.Y, next.Y), next
		}
		path = appendColumn(path, first, highest, lowest, last)
	}
	if n := len(path); c.step && !c.ends && n > 0 && path[n-1].X < s.right {
		path = append(path, canvas.Point{X: s.right, Y: path[n-1].Y})
	}
	return path
}

// appendColumn appends the first and the last point of a column of pixels. Between them it appends the others where
// they lie beyond: a line that goes forth and back has no visible dashes.
func appendColumn(path []canvas.Point, first, highest, lowest, last canvas.Point) []canvas.Point {
	between := []canvas.Point{first}
	if highest.Y < min(first.Y, last.Y) {
		between = append(between, highest)
	}
	if lowest.Y > max(first.Y, last.Y) {
		between = append(between, lowest)
	}
	for _, p := range append(between, last) {
		if n := len(path); n == 0 || path[n-1] != p {
			path = append(path, p)
		}
	}
	return path
}
