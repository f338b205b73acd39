package canvas

import (
	"bytes"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"
)

var ink = color.RGBA{200, 0, 0, 255}

// both calls draw with each kind of canvas, and returns the red pixels and the SVG.
func both(t *testing.T, draw func(Canvas)) (red map[[2]int]bool, svg string) {
	t.Helper()
	var picture, text bytes.Buffer
	for w, c := range map[*bytes.Buffer]Canvas{&picture: NewPNG(40, 30), &text: NewSVG(40, 30, "a < b")} {
		draw(c)
		if err := c.Encode(w); err != nil {
			t.Fatal(err)
		}
	}
	img, err := png.Decode(&picture)
	if err != nil {
		t.Fatal(err)
	}
	red = map[[2]int]bool{}
	for x := range 40 {
		for y := range 30 {
			red[[2]int{x, y}] = img.At(x, y) == color.Color(ink)
		}
	}
	return red, text.String()
}

func TestRectanglesAreSharp(t *testing.T) {
	red, svg := both(t, func(c Canvas) { c.Polygon(Rectangle(3, 4, 10, 12), Fill{Color: ink}) })
	for at, got := range red {
		if want := at[0] >= 3 && at[0] < 10 && at[1] >= 4 && at[1] < 12; got != want {
			t.Errorf("pixel %v: red %v", at, got)
		}
	}
	if !strings.Contains(svg, `<path fill="#c80000" d="M3 4H10V12H3Z"/>`) || !strings.Contains(svg, "a &lt; b") {
		t.Error(svg)
	}
}

func TestStepLinesAreSharpAndHaveCorners(t *testing.T) {
	red, svg := both(t, func(c Canvas) {
		c.Polyline([]Point{{5, 20}, {15, 20}, {15, 10}, {25, 10}}, Stroke{Color: ink, Width: 2})
	})
	for at, want := range map[[2]int]bool{
		{4, 20}: false, {5, 19}: true, {5, 20}: true, {5, 21}: false, {15, 20}: true, {15, 19}: true, {16, 20}: false,
		{14, 9}: true, {24, 10}: true, {25, 10}: false,
	} {
		if red[at] != want {
			t.Errorf("pixel %v: red %v", at, red[at])
		}
	}
	if !strings.Contains(svg, `stroke-width="2" d="M5 20H15V10H25"`) {
		t.Error(svg)
	}
}

func TestDashesGoRoundCorners(t *testing.T) {
	got := dashes([]Point{{0, 0}, {10, 0}, {10, 10}}, []float64{6, 2})
	want := [][]Point{{{0, 0}, {6, 0}}, {{8, 0}, {10, 0}, {10, 4}}, {{10, 6}, {10, 10}}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v", got)
	}
}

func TestHatchesDiffer(t *testing.T) {
	seen := map[int]Hatch{}
	for _, hatch := range []Hatch{Plain, Rising, Falling, Dotted, Crossed} {
		red, svg := both(t, func(c Canvas) {
			fill := Fill{Color: color.RGBA{255, 255, 255, 255}, Ink: ink, Hatch: hatch, Period: 8}
			c.Polygon(Rectangle(0, 0, 39, 30), fill)
		})
		hash := 0
		for at, set := range red {
			if set {
				hash += at[0]*at[0] + 31*at[1]*at[0] + at[1]
			}
		}
		if other, known := seen[hash]; known {
			t.Errorf("the hatches %d and %d are alike", hatch, other)
		}
		seen[hash] = hatch
		if strings.Contains(svg, "<pattern") == (hatch == Plain) {
			t.Error(svg)
		}
	}
}

func TestTextStandsAtItsAnchor(t *testing.T) {
	for _, test := range []struct {
		name                     string
		font                     Font
		left, top, right, bottom int // the bounds of the pixels
		svg                      string
	}{
		{"start", Font{Size: 12}, 20, 3, 28, 16, `<text x="20" y="15" font-size="12" fill="#c80000">`},
		{"middle", Font{Size: 12, Anchor: Middle}, 16, 3, 24, 16, `text-anchor="middle">`},
		{"end", Font{Size: 12, Anchor: End, Bold: true}, 11, 3, 20, 16, `font-weight="bold" text-anchor="end">`},
		{"up", Font{Size: 12, Up: true}, 8, 7, 21, 15, `transform="translate(20 15) rotate(-90)"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.font.Color = ink
			red, svg := both(t, func(c Canvas) { c.Text(Point{20, 15}, "H", test.font) })
			n := 0
			for at, set := range red {
				if set {
					n++
					if at[0] < test.left || at[0] > test.right || at[1] < test.top || at[1] > test.bottom {
						t.Errorf("pixel %v", at)
					}
				}
			}
			if n < 8 || !strings.Contains(svg, test.svg) {
				t.Errorf("%d pixels, %s", n, svg)
			}
		})
	}
}

func TestWidthGrowsWithTextAndSize(t *testing.T) {
	small, large := Width("≥ 5 µs", Font{Size: 12}), Width("≥ 5 µs", Font{Size: 24})
	if small < 20 || large < 1.8*small || Width("≥ 5 µs…", Font{Size: 12}) <= small {
		t.Errorf("%g and %g pixels", small, large)
	}
}

func TestOutsideIsNotDrawn(t *testing.T) {
	red, _ := both(t, func(c Canvas) {
		c.Polygon(Rectangle(-100, -100, -1, -1), Fill{Color: ink})
		c.Polyline([]Point{{50, -10}, {50, 90}}, Stroke{Color: ink, Width: 2})
		c.Polyline([]Point{{5, 5}}, Stroke{Color: ink, Width: 2})
		c.Polyline(nil, Stroke{Color: ink, Width: 2, Dash: []float64{1, 1}})
		c.Text(Point{-200, 10}, "text", Font{Size: 12, Color: ink})
	})
	for at, set := range red {
		if set {
			t.Errorf("pixel %v", at)
		}
	}
}
