package canvas

import "math"

// outline returns the polygons of a line: one rectangle for each segment, longer by half a width at inner corners.
// All have the same orientation.
func outline(pts []Point, width float64) (quads [][]Point) {
	half := width / 2
	for i := 1; i < len(pts); i++ {
		a, b := pts[i-1], pts[i]
		length := math.Hypot(b.X-a.X, b.Y-a.Y)
		if length == 0 {
			continue
		}
		dx, dy := (b.X-a.X)/length*half, (b.Y-a.Y)/length*half
		if i > 1 {
			a = Point{a.X - dx, a.Y - dy}
		}
		if i < len(pts)-1 {
			b = Point{b.X + dx, b.Y + dy}
		}
		quads = append(quads, []Point{
			{a.X - dy, a.Y + dx}, {b.X - dy, b.Y + dx}, {b.X + dy, b.Y - dx}, {a.X + dy, a.Y - dx},
		})
	}
	return quads
}

// dashes cuts a line into its dashes. Without a pattern, the line is one dash.
func dashes(pts []Point, pattern []float64) [][]Point {
	if len(pattern) == 0 || len(pts) < 2 {
		return [][]Point{pts}
	}
	var pieces [][]Point
	piece := []Point{pts[0]}
	turn, left := 0, pattern[0]
	for i := 1; i < len(pts); i++ {
		a, b := pts[i-1], pts[i]
		for {
			length := math.Hypot(b.X-a.X, b.Y-a.Y)
			if length <= left {
				left -= length
				break
			}
			a = Point{a.X + (b.X-a.X)*left/length, a.Y + (b.Y-a.Y)*left/length}
			if turn%2 == 0 {
				pieces = append(pieces, append(piece, a))
			}
			piece = []Point{a}
			turn++
			left = pattern[turn%len(pattern)]
		}
		piece = append(piece, b)
	}
	if turn%2 == 0 {
		pieces = append(pieces, piece)
	}
	return pieces
}
