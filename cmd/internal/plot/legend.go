package plot

import (
	"fmt"
	"math"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

// entry is one line of the legend.
type entry struct {
	name string
	draw func(left, middle, width float64) // draws the sample
}

// legend returns the entries, from top to bottom as the areas of a stack lie. They stand beside the plot area, so that
// they cover no data.
func (s *sheet) legend(width float64) (entries []entry) {
	for i, c := range s.curves {
		sample := func(left, middle, width float64) { s.lineSample(i, left, middle, width) }
		if s.chart.Stacked {
			sample = func(left, middle, width float64) { s.areaSample(i, left, middle, width) }
		}
		entries = append(entries, entry{c.name, sample})
	}
	if s.chart.Stacked {
		for i, n := 0, len(entries); i < n/2; i++ {
			entries[i], entries[n-1-i] = entries[n-1-i], entries[i]
		}
	}
	for i, c := range s.overlay {
		entries = append(entries, entry{c.name, func(left, middle, width float64) {
			s.on.Polyline([]canvas.Point{{X: left, Y: middle}, {X: left + width, Y: middle}}, s.dashed(i))
		}})
	}
	named := entries[:0]
	for _, e := range entries {
		if e.name != "" {
			e.name = shorten(e.name, width-s.letter*3.5, s.font())
			named = append(named, e)
		}
	}
	return s.fitting(named)
}

// fitting returns the entries that fit beside the plot area. The last one counts the others.
func (s *sheet) fitting(entries []entry) []entry {
	room := max(1, int((s.bottom-s.top)/s.entryHeight()))
	if len(entries) <= room {
		return entries
	}
	more := fmt.Sprintf("and %d more", len(entries)-room+1)
	return append(entries[:room-1], entry{more, func(float64, float64, float64) {}})
}

func (s *sheet) entryHeight() float64 { return math.Round(1.6 * s.letter) }

// sampleWidth is the width of a sample in the legend.
func (s *sheet) sampleWidth() float64 { return math.Round(2 * s.letter) }

// legendWidth returns the width of all right of the plot area. Without a legend, it holds half of the last label.
func (s *sheet) legendWidth() float64 {
	if len(s.entries) == 0 {
		return 2.5 * s.letter
	}
	widest := 0.0
	for _, e := range s.entries {
		widest = max(widest, canvas.Width(e.name, s.font()))
	}
	return widest + s.sampleWidth() + 3*s.letter
}

func (s *sheet) drawLegend() {
	left := s.right + math.Round(1.5*s.letter)
	for i, e := range s.entries {
		middle := s.top + float64(i)*s.entryHeight() + math.Round(s.entryHeight()/2)
		e.draw(left, middle, s.sampleWidth())
		at := canvas.Point{X: left + s.sampleWidth() + math.Round(s.letter/2), Y: middle + math.Round(0.36*s.letter)}
		s.on.Text(at, e.name, s.font())
	}
}

func (s *sheet) areaSample(i int, left, middle, width float64) {
	half := math.Round(0.45 * s.letter)
	fill := s.layer(i)
	s.on.Polygon(canvas.Rectangle(left, middle-half, left+width, middle+half), canvas.Fill{Color: fill.Ink})
	s.on.Polygon(canvas.Rectangle(left+1, middle-half+1, left+width-1, middle+half-1), fill)
}

func (s *sheet) lineSample(i int, left, middle, width float64) {
	s.on.Polyline([]canvas.Point{{X: left, Y: middle}, {X: left + width, Y: middle}},
		canvas.Stroke{Color: lines[i], Width: s.pen})
	if len(s.curves) > 1 {
		s.marker(i, canvas.Point{X: left + width/2, Y: middle})
	}
}
