package plot

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

// label is the text of a mark in the band above the data.
type label struct {
	mark        Mark
	text        string
	left, right float64
	row         int // from the top
}

// placeLabels gives each mark a place in the rows of the band above the data, and returns the height of the band.
func (s *sheet) placeLabels() (height float64) {
	s.labels = nil
	var ends []float64 // of each row
	marks := slices.Clone(s.marks)
	slices.SortStableFunc(marks, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	for _, m := range marks {
		l := label{mark: m, text: s.labelText(m)}
		width := canvas.Width(l.text, s.font()) + s.letter
		x := s.x(m.At)
		l.left = math.Round(max(s.left, min(x-width/2, s.right-width)))
		l.right = l.left + math.Ceil(width)
		l.row = slices.IndexFunc(ends, func(end float64) bool { return end < l.left })
		if l.row < 0 {
			if float64(len(ends)+1)*s.entryHeight() > (s.bottom-s.top)/2 {
				continue // the dot alone
			}
			l.row = len(ends)
			ends = append(ends, 0)
		}
		ends[l.row] = l.right
		s.labels = append(s.labels, l)
	}
	if len(ends) == 0 {
		return 0
	}
	return float64(len(ends))*s.entryHeight() + math.Round(s.letter/2)
}

// labelText returns the text, the value and the time of a mark. A long text is shortened, the numbers are not.
func (s *sheet) labelText(m Mark) string {
	numbers := s.chart.Unit.Format(m.Value) + " at " + s.time.format(m.At)
	if m.Text == "" {
		return numbers
	}
	room := s.right - s.left - canvas.Width(": "+numbers, s.font()) - s.letter
	return shorten(m.Text, room, s.font()) + ": " + numbers
}

// drawLabels draws the marks: a dot, a thin line to its label, and the label.
func (s *sheet) drawLabels() {
	for _, l := range s.labels {
		dot := s.place(Point{l.mark.At, l.mark.Value})
		s.on.Polygon(canvas.Rectangle(dot.X, s.labelTop(l), dot.X+1, dot.Y), canvas.Fill{Color: faint})
	}
	for _, m := range s.marks {
		dot := s.place(Point{m.At, m.Value})
		s.drawShape(circle, dot, s.letter*0.4, black)
		s.drawShape(circle, dot, s.letter*0.2, white)
	}
	font := s.font()
	font.Anchor = canvas.Middle
	for _, l := range s.labels {
		top := s.labelTop(l)
		box := canvas.Rectangle(l.left, top, l.right, top+s.entryHeight()-2)
		s.on.Polygon(box, canvas.Fill{Color: white})
		baseline := top + math.Round(s.entryHeight()/2+0.3*s.letter)
		s.on.Text(canvas.Point{X: math.Round((l.left + l.right) / 2), Y: baseline}, l.text, font)
	}
}

func (s *sheet) labelTop(l label) float64 { return s.top + float64(l.row)*s.entryHeight() }

// marker draws the shape of the i-th line on white.
func (s *sheet) marker(i int, at canvas.Point) {
	s.drawShape(markers[i], at, s.letter*0.45, white)
	s.drawShape(markers[i], at, s.letter*0.36, lines[i])
}

// drawShape fills a shape of a radius.
func (s *sheet) drawShape(form shape, at canvas.Point, radius float64, c color.RGBA) {
	pts := form.outline()
	for i, p := range pts {
		pts[i] = canvas.Point{X: at.X + p.X*radius, Y: at.Y + p.Y*radius}
	}
	s.on.Polygon(pts, canvas.Fill{Color: c})
}
