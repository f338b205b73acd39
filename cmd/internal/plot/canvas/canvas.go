package canvas

import (
	"image/color"
	"io"
)

// Canvas is a white picture to draw on. Later calls cover earlier ones.
type Canvas interface {
	// Polygon fills the area inside pts.
	Polygon(pts []Point, f Fill)
	// Polyline strokes the line through pts. Fewer than two points draw nothing.
	Polyline(pts []Point, s Stroke)
	// Text writes one line of text at a point of its baseline.
	Text(at Point, text string, f Font)
	// Encode writes the picture.
	Encode(w io.Writer) error
}

// Point is a place on a picture.
type Point struct{ X, Y float64 }

// Stroke is the style of a line. Dash lists the lengths of dashes and gaps in turn; nil is a solid line.
type Stroke struct {
	Color color.RGBA
	Width float64
	Dash  []float64
}

// Fill is the style of an area: Color, and Ink for the hatching. Period is the distance of two hatch lines.
type Fill struct {
	Color, Ink color.RGBA
	Hatch      Hatch
	Period     int
}

// Hatch is a pattern of an area. It tells areas apart where colors cannot.
type Hatch uint8

// The patterns.
const (
	Plain   Hatch = iota
	Rising        // lines from lower left to upper right
	Falling       // lines from upper left to lower right
	Dotted        // squares at the corners of a grid
	Crossed       // Rising and Falling
)

// Font is the style of a text. Up turns the text by 90° to read from bottom to top; its anchor then is along y.
type Font struct {
	Size   float64
	Bold   bool
	Color  color.RGBA
	Anchor Anchor
	Up     bool
}

// Anchor tells which part of a text stands at its point.
type Anchor uint8

// The anchors.
const (
	Start Anchor = iota
	Middle
	End
)

// Rectangle returns the corners of a rectangle.
func Rectangle(left, top, right, bottom float64) []Point {
	return []Point{{left, top}, {right, top}, {right, bottom}, {left, bottom}}
}
