package plot

import (
	"math"
	"strings"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

const (
	ellipsis = "…"
	longest  = 1000 // letters of one line
)

// wrap breaks a text between words into at most count lines of a width. The last line ends
// with an ellipsis if more follows.
func wrap(text string, width float64, f canvas.Font, count int) (lines []string) {
	words := strings.Fields(text)
	for len(words) > 0 {
		if len(lines) == count-1 {
			return append(lines, truncate(strings.Join(words, " "), width, f))
		}
		n := 1
		for n < len(words) && canvas.Width(strings.Join(words[:n+1], " "), f) <= width {
			n++
		}
		lines = append(lines, shorten(strings.Join(words[:n], " "), width, f))
		words = words[n:]
	}
	return lines
}

// truncate replaces the end of a text that is wider than width by an ellipsis.
func truncate(text string, width float64, f canvas.Font) string {
	if canvas.Width(text, f) <= width {
		return text
	}
	letters := []rune(text)
	for n := min(len(letters), longest) - 1; n > 0; n-- {
		if short := strings.TrimRight(string(letters[:n]), " ") + ellipsis; canvas.Width(short, f) <= width {
			return short
		}
	}
	return ellipsis
}

// shorten replaces the middle of a text that is wider than width by an ellipsis: both ends of a name tell it apart.
func shorten(text string, width float64, f canvas.Font) string {
	if canvas.Width(text, f) <= width {
		return text
	}
	letters := []rune(text)
	for n := min(len(letters), longest) - 1; n > 0; n-- {
		head := (n + 1) / 2
		short := strings.TrimRight(string(letters[:head]), " ") + ellipsis +
			strings.TrimLeft(string(letters[len(letters)-(n-head):]), " ")
		if canvas.Width(short, f) <= width {
			return short
		}
	}
	return ellipsis
}

// textWidth returns the width for title and note.
func (s *sheet) textWidth() float64 { return float64(s.size.Width) - 2*s.letter }

func (s *sheet) titleLines() []string { return wrap(s.chart.Title, s.textWidth(), s.titleFont(), 2) }

func (s *sheet) subtitleLines() []string {
	return wrap(s.chart.Subtitle, s.textWidth(), s.faintFont(), 2)
}

func (s *sheet) noteLines() []string {
	note := s.chart.Note
	for _, remark := range s.omitted {
		if note != "" {
			note = strings.TrimSuffix(note, ".") + ". "
		}
		note += remark
	}
	return wrap(note, s.textWidth(), s.faintFont(), 3)
}

// headHeight returns the height of title and subtitle.
func (s *sheet) headHeight() float64 {
	height := float64(len(s.titleLines()))*math.Round(1.6*s.letter) + float64(len(s.subtitleLines()))*s.line()
	if height > 0 {
		height += math.Round(0.4 * s.letter)
	}
	return height
}

func (s *sheet) noteHeight() float64 {
	if n := len(s.noteLines()); n > 0 {
		return float64(n)*s.line() + math.Round(0.5*s.letter)
	}
	return 0
}

func (s *sheet) drawHead() {
	y := math.Round(0.6 * s.letter)
	for _, line := range s.titleLines() {
		y += math.Round(1.6 * s.letter)
		s.on.Text(canvas.Point{X: s.letter, Y: y - math.Round(0.3*s.letter)}, line, s.titleFont())
	}
	for _, line := range s.subtitleLines() {
		y += s.line()
		s.on.Text(canvas.Point{X: s.letter, Y: y - math.Round(0.3*s.letter)}, line, s.faintFont())
	}
}

func (s *sheet) drawNote() {
	lines := s.noteLines()
	y := float64(s.size.Height) - math.Round(0.8*s.letter) - float64(len(lines)-1)*s.line()
	for _, line := range lines {
		s.on.Text(canvas.Point{X: s.letter, Y: y}, line, s.faintFont())
		y += s.line()
	}
}

func (s *sheet) drawGrid() {
	for _, v := range s.value.ticks() {
		s.rule(s.left, s.right, math.Round(s.y(v)), math.Round(s.y(v))+1)
	}
	for _, at := range s.time.ticks() {
		s.rule(math.Round(s.x(at)), math.Round(s.x(at))+1, s.top, s.bottom)
	}
}

func (s *sheet) rule(left, right, top, bottom float64) {
	s.on.Polygon(canvas.Rectangle(left, top, right, bottom), canvas.Fill{Color: grid})
}

// drawFrame draws the lines at the left and at the bottom of the plot area, outside of it.
func (s *sheet) drawFrame() {
	fill := canvas.Fill{Color: faint}
	s.on.Polygon(canvas.Rectangle(s.left-1, s.top, s.left, s.bottom+1), fill)
	s.on.Polygon(canvas.Rectangle(s.left-1, s.bottom, s.right, s.bottom+1), fill)
}

// drawAxes draws the ticks, their labels and the labels of the axes.
func (s *sheet) drawAxes() {
	tick, fill := s.tick(), canvas.Fill{Color: faint}
	numbers := s.font()
	numbers.Anchor = canvas.End
	for _, v := range s.value.ticks() {
		y := math.Round(s.y(v))
		s.on.Polygon(canvas.Rectangle(s.left-1-tick, y, s.left-1, y+1), fill)
		s.on.Text(canvas.Point{X: s.left - 2*tick, Y: y + math.Round(s.letter*0.36)}, s.value.label(v), numbers)
	}
	s.drawTimes()
	title := s.font()
	title.Anchor = canvas.Middle
	title.Up = true
	name := shorten(s.value.title(s.chart.YLabel), s.bottom-s.top, title)
	s.on.Text(canvas.Point{X: math.Round(1.6 * s.letter), Y: (s.top + s.bottom) / 2}, name, title)
}

// tick returns the length of a tick.
func (s *sheet) tick() float64 { return math.Round(s.letter / 3) }

func (s *sheet) drawTimes() {
	tick, centered := s.tick(), s.font()
	centered.Anchor = canvas.Middle
	y := s.bottom + tick + math.Round(1.15*s.letter)
	shown := ""
	for _, at := range s.time.ticks() {
		x := math.Round(s.x(at))
		s.on.Polygon(canvas.Rectangle(x, s.bottom, x+1, s.bottom+1+tick), canvas.Fill{Color: faint})
		s.on.Text(canvas.Point{X: x, Y: y}, s.time.label(at), centered)
		if date := s.time.date(at); date != shown {
			s.on.Text(canvas.Point{X: x, Y: y + s.line()}, date, centered)
			shown = date
		}
	}
	if s.hasDates() {
		y += s.line()
	}
	title := shorten(s.time.title(), s.textWidth(), centered)
	s.on.Text(canvas.Point{X: (s.left + s.right) / 2, Y: y + s.line()}, title, centered)
}
