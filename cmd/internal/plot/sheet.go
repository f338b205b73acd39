package plot

import (
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

// sheet is a chart on a canvas: what it shows, and where.
type sheet struct {
	chart  Chart
	on     canvas.Canvas
	size   Size
	letter float64 // font size
	pen    float64 // width of lines

	content
	time  timeAxis
	value valueAxis

	left, top, right, bottom float64 // of the plot area, whole numbers
	marks                    []Mark  // of the chart and of its curves
	entries                  []entry
	labels                   []label
}

func newSheet(c Chart, on canvas.Canvas, size Size) *sheet {
	s := &sheet{chart: c, on: on, size: size}
	s.letter = math.Round(max(12, min(float64(size.Width)/75, float64(size.Height)/37.5)))
	s.pen = max(2, math.Round(s.letter/8))
	s.content = collect(c, size.Width)
	s.marks = slices.Clone(c.Marks)
	if !c.Stacked {
		for _, one := range s.curves {
			if one.mark != nil {
				s.marks = append(s.marks, *one.mark)
			}
		}
	}
	for _, m := range s.marks {
		s.from, s.to = min(s.from, m.At), max(s.to, m.At)
	}
	s.arrange()
	return s
}

// arrange finds the plot area: the rest beside title, labels, legend and note. The labels of marks lie above the data.
func (s *sheet) arrange() {
	width, height := float64(s.size.Width), float64(s.size.Height)
	line := s.line()
	s.top = math.Round(s.letter + s.headHeight())
	s.bottom = height - math.Round(s.letter*0.8+2.5*line+s.noteHeight())
	if s.hasDates() {
		s.bottom -= math.Round(line)
	}
	s.entries = s.legend(width * 0.3)
	s.right = width - math.Round(s.legendWidth())
	low, high := s.valueRange()
	s.value = newValueAxis(s.chart.Unit, low, high*1.05, s.tickCount(0))
	for range 2 { // the labels of values need space, and their number depends on it
		s.left = math.Round(s.letter + 1.6*line + s.widestValue())
		s.time = newTimeAxis(s.chart.Begin, s.from, s.to, s.right-s.left,
			func(label string) float64 { return max(1.35*canvas.Width(label, s.font()), 4.5*s.letter) })
		band := s.placeLabels()
		share := max(0.1, 1-(band+0.8*s.letter)/(s.bottom-s.top))
		s.value = newValueAxis(s.chart.Unit, low, low+(high-low)/share, s.tickCount(band))
	}
}

// valueRange returns the least and the largest value of all that is drawn, and always zero.
func (s *sheet) valueRange() (low, high float64) {
	if s.chart.Stacked {
		high = peakOfSum(s.curves)
	}
	lines := s.overlay
	if !s.chart.Stacked {
		lines = append(lines[:len(lines):len(lines)], s.curves...)
	}
	for _, c := range lines {
		for _, p := range c.points {
			low, high = min(low, p.Value), max(high, p.Value)
		}
	}
	for _, m := range s.marks {
		low, high = min(low, m.Value), max(high, m.Value)
	}
	if high == low {
		high = low + 1
	}
	return low, high
}

// peakOfSum returns the largest total of step curves.
func peakOfSum(curves []curve) (peak float64) {
	m := newMerge(curves)
	for m.next() {
		peak = max(peak, m.total())
	}
	return peak
}

func (s *sheet) empty() bool {
	return len(s.curves) == 0 && len(s.overlay) == 0 && len(s.marks) == 0
}

// tickCount returns the number of values with a label, if a band at the top holds no data.
func (s *sheet) tickCount(band float64) int {
	return max(2, int((s.bottom-s.top-band)/(2.6*s.letter)))
}

func (s *sheet) widestValue() (widest float64) {
	for _, v := range s.value.ticks() {
		widest = max(widest, canvas.Width(s.value.label(v), s.font()))
	}
	return widest
}

func (s *sheet) hasDates() bool {
	axis := timeAxis{begin: s.chart.Begin, from: s.from, to: s.to}
	return !s.chart.Begin.IsZero() && axis.severalDates()
}

// line returns the height of a line of text.
func (s *sheet) line() float64 { return math.Round(1.35 * s.letter) }

func (s *sheet) font() canvas.Font { return canvas.Font{Size: s.letter, Color: text} }

func (s *sheet) titleFont() canvas.Font {
	return canvas.Font{Size: math.Round(1.2 * s.letter), Bold: true, Color: text}
}

func (s *sheet) faintFont() canvas.Font { return canvas.Font{Size: s.letter, Color: faint} }

// x returns the place of a time.
func (s *sheet) x(at time.Duration) float64 {
	return s.left + float64(at-s.from)/float64(s.to-s.from)*(s.right-s.left)
}

// y returns the place of a value.
func (s *sheet) y(v float64) float64 {
	return s.bottom - (v-s.value.low)/(s.value.high-s.value.low)*(s.bottom-s.top)
}

// draw draws everything, the lowest first.
func (s *sheet) draw() {
	s.drawHead()
	if s.empty() {
		s.drawFrame()
		middle := canvas.Point{X: (s.left + s.right) / 2, Y: (s.top + s.bottom) / 2}
		s.on.Text(middle, "no data", canvas.Font{Size: math.Round(1.5 * s.letter), Color: faint, Anchor: canvas.Middle})
		if s.chart.Length > 0 {
			s.drawTimes()
		}
		s.drawNote()
		return
	}
	s.drawGrid()
	if s.chart.Stacked {
		s.drawStack()
	} else {
		s.drawLines()
	}
	s.drawOverlay()
	s.drawFrame()
	s.drawAxes()
	s.drawLabels()
	s.drawLegend()
	s.drawNote()
}
