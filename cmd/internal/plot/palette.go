package plot

import (
	"image/color"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

// The colors of Okabe and Ito, which people with color blindness tell apart, from dark to light.
var (
	blue       = color.RGBA{0x00, 0x72, 0xb2, 0xff} // luminance 87 of 255
	green      = color.RGBA{0x00, 0x9e, 0x73, 0xff} // 106
	vermillion = color.RGBA{0xd5, 0x5e, 0x00, 0xff} // 119
	purple     = color.RGBA{0xcc, 0x79, 0xa7, 0xff} // 151
	sky        = color.RGBA{0x56, 0xb4, 0xe9, 0xff} // 158
	orange     = color.RGBA{0xe6, 0x9f, 0x00, 0xff} // 162
	yellow     = color.RGBA{0xf0, 0xe4, 0x42, 0xff} // 213
	mustard    = color.RGBA{0x99, 0x8a, 0x00, 0xff} // yellow that is dark enough for a line on white
	silver     = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	black      = color.RGBA{0x00, 0x00, 0x00, 0xff}
	white      = color.RGBA{0xff, 0xff, 0xff, 0xff}
	text       = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint      = color.RGBA{0x5a, 0x5a, 0x5a, 0xff}
	grid       = color.RGBA{0xe2, 0xe2, 0xe2, 0xff}
)

// layers are the fills of a stack from bottom to top. Neighbours of a near luminance differ in their hatching.
var layers = [Limit + 1]canvas.Fill{
	{Color: blue},
	{Color: orange, Hatch: canvas.Rising},
	{Color: green},
	{Color: sky, Hatch: canvas.Falling},
	{Color: vermillion},
	{Color: yellow, Hatch: canvas.Dotted},
	{Color: purple, Hatch: canvas.Crossed},
	{Color: silver},
}

// lines are the colors of lines, dark and light ones in turn, and markers their shapes.
var (
	lines   = [Limit]color.RGBA{blue, orange, vermillion, sky, green, purple, mustard}
	markers = [Limit]shape{circle, square, triangle, diamond, wedge, plus, cross}
)

// overlays are the dashes of overlay lines in line widths, and their colors.
var overlays = [Limit]canvas.Stroke{
	{Color: black, Dash: []float64{4, 2}},
	{Color: faint, Dash: []float64{1.5, 1.5}},
	{Color: black, Dash: []float64{6, 2, 1.5, 2}},
	{Color: faint, Dash: []float64{8, 3}},
	{Color: black, Dash: []float64{1.5, 3}},
	{Color: faint, Dash: []float64{6, 2, 1.5, 2, 1.5, 2}},
	{Color: black, Dash: []float64{10, 3, 4, 3}},
}

// darker returns the color of outlines and hatching on a color.
func darker(c color.RGBA) color.RGBA {
	return color.RGBA{c.R / 8 * 5, c.G / 8 * 5, c.B / 8 * 5, 0xff}
}
