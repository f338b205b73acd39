package rule

import (
	"fmt"
	"math"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// allocRate finds processes that allocate GPU memory far more often than before.
//
// The baseline is the median of the last ten minutes in which the process allocated or launched kernels; five are
// enough. A program with a caching allocator seldom allocates, so its baseline is 0. A window is odd if it has Factor
// times as many allocations, and also twice as many as the largest window before. More work means more allocations: if
// the process launches kernels, the allocations for each launch must have grown by Factor too. Three windows in a row
// fire. The alert clears after three windows below half the threshold, and after ten minutes, because the new rate is
// then the usual one.
type allocRate struct {
	base
	AllocRate
}

const (
	warmWindows = 30 // before a baseline counts
	oddWindows  = 3
	maxFiring   = 60 // windows; then the new level is the baseline
)

type allocState struct {
	streak
	usual   history // allocations of a window
	each    history // allocations for each launch of a window
	largest float64 // window that raised no alert
	peak    float64 // largest window of the streak
	normal  uint64  // windows in a row below half the threshold, while it fires
}

// Kinds returns the launches, by which the rule tells more work from more allocations.
func (*allocRate) Kinds() []schema.Kind { return []schema.Kind{schema.KindLaunch} }

func (r *allocRate) Window(w *Window) {
	s, n := &w.Process.State.allocs, float64(w.Counts.Allocs)
	if n == 0 && w.Counts.Launches == 0 && !s.firing {
		if w.Complete {
			s.ends()
		}
		return
	}
	median, _ := s.usual.median()
	odd := r.odd(w, s, n, median)
	switch {
	case !w.Complete:
		if odd {
			r.suppress("gap")
		}
	case s.firing:
		r.firing(w, s, n, median)
	case odd:
		s.odd(w, w.spans[schema.KindMemory].from)
		s.peak = max(s.peak, n)
		if s.windows >= oddWindows {
			s.firing, s.normal = true, 0
			r.fireRate(w, s, n, median)
		}
	default:
		s.ends()
		s.learn(w, n)
	}
}

// ends ends a streak that did not fire: bursts of that size are usual.
func (s *allocState) ends() { s.largest, s.peak, s.windows = max(s.largest, s.peak), 0, 0 }

func (r *allocRate) odd(w *Window, s *allocState, n, median float64) bool {
	least := max(float64(r.Factor)*median, 2*s.largest, float64(r.MinPerSecond)*windowLength.Seconds())
	if len(s.usual.values) < warmWindows || n < least {
		return false
	}
	each, _ := s.each.median()
	return each == 0 || perLaunch(w) >= float64(r.Factor)*each
}

func perLaunch(w *Window) float64 {
	if w.Counts.Launches == 0 {
		return 0
	}
	return float64(w.Counts.Allocs) / float64(w.Counts.Launches)
}

// firing decides whether the alert ends.
func (r *allocRate) firing(w *Window, s *allocState, n, median float64) {
	s.windows++
	s.normal++
	if n >= float64(r.Factor)*median/2 {
		s.normal = 0
	}
	why := "the rate is back to what it was"
	switch {
	case s.windows >= maxFiring:
		why = "it is the usual rate now"
		s.usual, s.each = history{}, history{}
	case s.normal < oddWindows:
		return
	}
	s.firing, s.windows, s.peak = false, 0, 0
	s.learn(w, n)
	r.set.book.Clear(r.key(w.Process, ""), w.end(), why)
}

func (s *allocState) learn(w *Window, n float64) {
	s.usual.add(n)
	s.largest = max(s.largest, n)
	if w.Counts.Launches > 0 {
		s.each.add(perLaunch(w))
	}
}

func (r *allocRate) fireRate(w *Window, s *allocState, n, median float64) {
	seconds := windowLength.Seconds()
	span := w.spans[schema.KindMemory]
	r.fire(w.Process, r.key(w.Process, ""), w.end(), span.to, func() alert.Alert {
		a := w.about(schema.KindMemory, s.seqFrom)
		a.Severity, a.Since = alert.Warning, s.began(w)
		a.Value, a.Baseline = n/seconds, median/seconds
		a.Score = math.Round(100*n/max(median, 1)) / 100
		usual := fmt.Sprintf("%.3g times its usual %.3g", a.Score, a.Baseline)
		if median == 0 {
			usual = "and seldom made any before"
		}
		a.Message = fmt.Sprintf("%s (pid %d) on %s makes %.0f allocations of GPU memory per second, %s. Look for a "+
			"loop that allocates memory each time. Allocate it once before the loop, and use it again.",
			a.Comm, a.PID, a.Host, a.Value, usual)
		return a
	})
}

func (s *allocState) code(c *snapshot.Codec) {
	s.streak.code(c)
	s.usual.code(c)
	s.each.code(c)
	c.Float64(&s.largest, &s.peak)
	snapshot.Uint(c, &s.normal)
}
