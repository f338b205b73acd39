package analyze

import (
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/analysis"
)

const (
	growthWindow = time.Minute
	maxWindows   = 240 // whose slopes are compared pair by pair
	minWindows   = 3
)

// growth returns the slope of the memory of a process in bytes per hour: the Theil–Sen slope of the minima of equal
// windows, of one minute or longer. It is unknown below three windows.
func growth(p *analysis.Process, end time.Time) (perHour float64, known bool, err error) {
	begin, end, err := span(p, end)
	step := max(growthWindow, end.Sub(begin)/maxWindows)
	n := int(end.Sub(begin) / step)
	if err != nil || begin.IsZero() || n < minWindows {
		return 0, false, err
	}
	minima := make([]float64, n)
	for i := range minima {
		minima[i] = math.Inf(1)
	}
	at, live := begin, math.Inf(1) // since when, and how many bytes
	until := func(t time.Time) {
		for i := int(at.Sub(begin) / step); i < n && (!begin.Add(time.Duration(i) * step).After(t)); i++ {
			minima[i] = min(minima[i], live)
		}
		at = t
	}
	err = p.Usage(nil, func(t time.Time, bytes uint64) bool {
		until(t)
		live = float64(bytes)
		return true
	})
	until(end)
	return theilSen(minima) * float64(time.Hour) / float64(step), true, err
}

// span returns when the memory of a process began and ended. A process that freed all ends with its last change.
func span(p *analysis.Process, end time.Time) (first, last time.Time, err error) {
	var newest time.Time
	live := uint64(0)
	err = p.Usage(nil, func(t time.Time, bytes uint64) bool {
		if first.IsZero() {
			first = t
		}
		newest, live = t, bytes
		return true
	})
	switch ended := p.Ended(); {
	case live == 0:
		return first, newest, err
	case !ended.IsZero():
		return first, ended, err
	case end.Before(newest):
		return first, newest, err
	}
	return first, end, err
}

// theilSen returns the median of the slopes of all pairs of values, per step.
func theilSen(values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := range i {
			slopes = append(slopes, (values[i]-values[j])/float64(i-j))
		}
	}
	slices.Sort(slopes)
	return (slopes[len(slopes)/2] + slopes[(len(slopes)-1)/2]) / 2
}
