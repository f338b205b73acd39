package canvas

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"strconv"
	"strings"
)

// svgFonts are common fonts that are not wider than the Go font, by which texts are measured.
const svgFonts = "Helvetica, Arial, 'Liberation Sans', sans-serif"

type svg struct {
	width, height int
	title         string
	patterns      []Fill // in the order of their first use; the pattern i has the id "hatch<i>"
	body          bytes.Buffer
}

// NewSVG returns a canvas that ends as an SVG. Screen readers and browsers show the title.
func NewSVG(width, height int, title string) Canvas {
	return &svg{width: width, height: height, title: title}
}

func (s *svg) Polygon(pts []Point, f Fill) {
	paint := hex(f.Color)
	if f.Hatch != Plain {
		paint = "url(#hatch" + strconv.Itoa(s.pattern(f)) + ")"
	}
	fmt.Fprintf(&s.body, `<path fill="%s" d="%sZ"/>`+"\n", paint, path(pts))
}

// pattern returns the number of a pattern; it remembers new ones.
func (s *svg) pattern(f Fill) int {
	for i, p := range s.patterns {
		if p == f {
			return i
		}
	}
	s.patterns = append(s.patterns, f)
	return len(s.patterns) - 1
}

func (s *svg) Polyline(pts []Point, l Stroke) {
	if len(pts) < 2 {
		return
	}
	dash := ""
	if len(l.Dash) > 0 {
		lengths := make([]string, len(l.Dash))
		for i, length := range l.Dash {
			lengths[i] = number(length)
		}
		dash = ` stroke-dasharray="` + strings.Join(lengths, " ") + `"`
	}
	fmt.Fprintf(&s.body, `<path fill="none" stroke="%s" stroke-width="%s"%s d="%s"/>`+"\n",
		hex(l.Color), number(l.Width), dash, path(pts))
}

func (s *svg) Text(at Point, text string, f Font) {
	place := fmt.Sprintf(`x="%s" y="%s"`, number(at.X), number(at.Y))
	if f.Up {
		place = fmt.Sprintf(`transform="translate(%s %s) rotate(-90)"`, number(at.X), number(at.Y))
	}
	style := ""
	if f.Bold {
		style += ` font-weight="bold"`
	}
	if f.Anchor != Start {
		style += map[Anchor]string{Middle: ` text-anchor="middle"`, End: ` text-anchor="end"`}[f.Anchor]
	}
	fmt.Fprintf(&s.body, `<text %s font-size="%s" fill="%s"%s>%s</text>`+"\n",
		place, number(f.Size), hex(f.Color), style, escaped(text))
}

func (s *svg) Encode(w io.Writer) error {
	var head bytes.Buffer
	fmt.Fprintf(&head, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`role="img" font-family="%s">`+"\n<title>%s</title>\n", s.width, s.height, svgFonts, escaped(s.title))
	if len(s.patterns) > 0 {
		head.WriteString("<defs>\n")
		for i, f := range s.patterns {
			writePattern(&head, i, f)
		}
		head.WriteString("</defs>\n")
	}
	fmt.Fprintf(&head, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", s.width, s.height)
	_, err := io.Copy(w, io.MultiReader(&head, &s.body, strings.NewReader("</svg>\n")))
	return err
}

// writePattern defines a pattern. Lines go beyond the tile, so that they meet those of the next one.
func writePattern(w *bytes.Buffer, id int, f Fill) {
	p := f.Period
	rising := fmt.Sprintf("M-1 1L1 -1M-1 %dL%[2]d -1M%d %[2]dL%[2]d %[1]d", p+1, p+1, p-1)
	falling := fmt.Sprintf("M-1 -1L%d %[1]dM%d -1L%[1]d 1M-1 %[2]dL1 %[1]d", p+1, p-1)
	thick := max(1, p/5)
	lines := map[Hatch]string{Rising: rising, Falling: falling, Crossed: rising + falling}[f.Hatch]
	fmt.Fprintf(w, `<pattern id="hatch%d" width="%d" height="%[2]d" patternUnits="userSpaceOnUse">`+
		`<rect width="%[2]d" height="%[2]d" fill="%s"/>`, id, p, hex(f.Color))
	if f.Hatch == Dotted {
		fmt.Fprintf(w, `<rect width="%d" height="%[1]d" fill="%s"/>`, thick+1, hex(f.Ink))
	} else {
		fmt.Fprintf(w, `<path stroke="%s" stroke-width="%d" d="%s"/>`, hex(f.Ink), thick, lines)
	}
	w.WriteString("</pattern>\n")
}

// path returns the commands of a line, the shorter H and V where one coordinate stays.
func path(pts []Point) string {
	var b strings.Builder
	var x, y string
	for i, p := range pts {
		px, py := number(p.X), number(p.Y)
		switch {
		case i == 0:
			b.WriteString("M" + px + " " + py)
		case px == x && py == y:
		case py == y:
			b.WriteString("H" + px)
		case px == x:
			b.WriteString("V" + py)
		default:
			b.WriteString("L" + px + " " + py)
		}
		x, y = px, py
	}
	return b.String()
}

// number formats a coordinate with at most one decimal.
func number(v float64) string {
	text := strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	if text == "-0" {
		return "0"
	}
	return text
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// escaped returns a text for XML. Bytes that XML cannot hold become U+FFFD.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder returns no error
	return b.String()
}
