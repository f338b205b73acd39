package canvas

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

type raster struct {
	img  *image.RGBA
	fill vector.Rasterizer
}

// NewPNG returns a canvas that ends as a PNG.
func NewPNG(width, height int) Canvas {
	r := &raster{img: image.NewRGBA(image.Rect(0, 0, width, height))}
	draw.Draw(r.img, r.img.Bounds(), image.White, image.Point{}, draw.Src)
	return r
}

func (r *raster) Polygon(pts []Point, f Fill) {
	if f.Hatch == Plain {
		r.paint([][]Point{pts}, image.NewUniform(f.Color))
		return
	}
	r.paint([][]Point{pts}, hatching(f))
}

func (r *raster) Polyline(pts []Point, s Stroke) {
	var quads [][]Point
	for _, piece := range dashes(pts, s.Dash) {
		quads = append(quads, outline(piece, s.Width)...)
	}
	r.paint(quads, image.NewUniform(s.Color))
}

// paint fills polygons of one orientation with src. Where they overlap, they count once.
func (r *raster) paint(polygons [][]Point, src image.Image) {
	box := bounds(polygons).Intersect(r.img.Bounds())
	if box.Empty() {
		return
	}
	r.fill.Reset(box.Dx(), box.Dy())
	for _, pts := range polygons {
		for i, p := range pts {
			x, y := float32(p.X-float64(box.Min.X)), float32(p.Y-float64(box.Min.Y))
			if i == 0 {
				r.fill.MoveTo(x, y)
			} else {
				r.fill.LineTo(x, y)
			}
		}
		r.fill.ClosePath()
	}
	r.fill.Draw(r.img, box, src, box.Min)
}

// bounds returns the least rectangle of whole pixels around polygons.
func bounds(polygons [][]Point) (box image.Rectangle) {
	for _, pts := range polygons {
		for _, p := range pts {
			x, y := int(math.Floor(p.X)), int(math.Floor(p.Y))
			box = box.Union(image.Rect(x, y, x+1, y+1))
		}
	}
	return box
}

func (r *raster) Text(at Point, text string, f Font) {
	withFace(f, func(face font.Face) {
		advance := font.MeasureString(face, text)
		metrics := face.Metrics()
		ascent := metrics.Ascent.Ceil()
		line := image.NewAlpha(image.Rect(0, 0, advance.Ceil()+2, ascent+metrics.Descent.Ceil()))
		drawer := font.Drawer{Dst: line, Src: image.Opaque, Face: face, Dot: fixed.P(1, ascent)}
		drawer.DrawString(text)
		before := map[Anchor]float64{Start: 0, Middle: 0.5, End: 1}[f.Anchor] * float64(advance) / 64
		r.stamp(at, line, int(math.Round(before))+1, ascent, f)
	})
}

// stamp draws the mask line so that its pixel (x, y) is at the point.
func (r *raster) stamp(at Point, line *image.Alpha, x, y int, f Font) {
	left, top := int(math.Round(at.X))-x, int(math.Round(at.Y))-y
	if f.Up {
		line, left, top = turned(line), int(math.Round(at.X))-y, int(math.Round(at.Y))-(line.Rect.Dx()-x)
	}
	box := line.Rect.Add(image.Pt(left, top))
	draw.DrawMask(r.img, box, image.NewUniform(f.Color), image.Point{}, line, image.Point{}, draw.Over)
}

// turned returns the mask turned by 90° counterclockwise.
func turned(line *image.Alpha) *image.Alpha {
	width, height := line.Rect.Dx(), line.Rect.Dy()
	up := image.NewAlpha(image.Rect(0, 0, height, width))
	for y := range height {
		for x := range width {
			up.SetAlpha(y, width-1-x, line.AlphaAt(x, y))
		}
	}
	return up
}

func (r *raster) Encode(w io.Writer) error { return png.Encode(w, r.img) }

// hatching is an endless image of a pattern.
type hatching Fill

func (hatching) ColorModel() color.Model { return color.RGBAModel }
func (hatching) Bounds() image.Rectangle {
	return image.Rect(math.MinInt32, math.MinInt32, math.MaxInt32, math.MaxInt32)
}

func (h hatching) At(x, y int) color.Color {
	if h.inked(x, y) {
		return h.Ink
	}
	return h.Color
}

// inked reports whether a pixel is part of the pattern. Coordinates are at least 0.
func (h hatching) inked(x, y int) bool {
	p := h.Period
	thick := max(1, p/5)
	rising := (x+y)%p < thick
	falling := (x-y+p*(1+y/p))%p < thick
	switch h.Hatch {
	case Rising:
		return rising
	case Falling:
		return falling
	case Dotted:
		return x%p < thick+1 && y%p < thick+1
	case Crossed:
		return rising || falling
	default:
		return false
	}
}
