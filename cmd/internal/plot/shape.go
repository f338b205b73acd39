package plot

import (
	"math"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

// shape is the form of a marker.
type shape uint8

const (
	circle shape = iota
	square
	triangle
	diamond
	wedge // a triangle that points down
	plus
	cross // a plus that is turned by 45°
)

// outline returns the corners of a shape about the size of a circle of radius 1.
func (s shape) outline() []canvas.Point {
	switch s {
	case square:
		return canvas.Rectangle(-0.9, -0.9, 0.9, 0.9)
	case triangle:
		return []canvas.Point{{X: -1.15, Y: 0.9}, {X: 0, Y: -1.2}, {X: 1.15, Y: 0.9}}
	case wedge:
		return []canvas.Point{{X: -1.15, Y: -0.9}, {X: 0, Y: 1.2}, {X: 1.15, Y: -0.9}}
	case diamond:
		return []canvas.Point{{X: 0, Y: -1.35}, {X: 1.2, Y: 0}, {X: 0, Y: 1.35}, {X: -1.2, Y: 0}}
	case plus:
		return bars()
	case cross:
		pts := bars()
		for i, p := range pts {
			pts[i] = canvas.Point{X: (p.X - p.Y) * math.Sqrt2 / 2, Y: (p.X + p.Y) * math.Sqrt2 / 2}
		}
		return pts
	default:
		pts := make([]canvas.Point, 24)
		for i := range pts {
			sin, cos := math.Sincos(float64(i) / float64(len(pts)) * 2 * math.Pi)
			pts[i] = canvas.Point{X: cos, Y: sin}
		}
		return pts
	}
}

// bars returns the corners of a plus.
func bars() []canvas.Point {
	const a, b = 0.42, 1.2
	return []canvas.Point{{X: -a, Y: -b}, {X: a, Y: -b}, {X: a, Y: -a}, {X: b, Y: -a}, {X: b, Y: a}, {X: a, Y: a},
		{X: a, Y: b}, {X: -a, Y: b}, {X: -a, Y: a}, {X: -b, Y: a}, {X: -b, Y: -a}, {X: -a, Y: -a}}
}
