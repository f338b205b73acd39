package rule

import (
	"fmt"
	"math"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// launchCollapse finds processes that launch kernels far less often than before.
//
// Kernels that graphs run count like launched ones, so a program that begins to use graphs does not collapse. The
// baseline is the median of the last ten minutes in which the process launched; it must be steady: four of five windows
// within a factor of two. A window is low below Percent of it. Windows without any launch do not count: a process that
// stopped is idle, finished or stuck, and launches alone do not tell which. The rate must be low for the time For, and
// twice as long as any earlier low phase that ended: validation and checkpoints come again. The alert clears at twice
// the threshold, when the process stops, and after ten minutes.
type launchCollapse struct {
	base
	LaunchCollapse
}

type launchState struct {
	streak
	usual   history // kernels of a window
	longest uint64  // windows of the longest low phase that ended
	idle    uint64  // windows in a row without a launch, while it fires
}

func (*launchCollapse) Kinds() []schema.Kind { return []schema.Kind{schema.KindLaunch} }

func (r *launchCollapse) Window(w *Window) {
	s, n := &w.Process.State.launches, float64(w.Counts.Launches)
	if n == 0 {
		if w.Complete {
			r.stopped(w, s)
		}
		return
	}
	s.idle = 0
	median, _ := s.usual.median()
	low := r.low(s, n, median)
	switch {
	case !w.Complete || w.Counts.Unknown:
		if low {
			r.suppress("gap")
		}
	case s.firing:
		s.windows++
		r.firing(w, s, n, median)
	case low:
		s.odd(w, w.spans[schema.KindLaunch].from)
		if s.windows >= max(uint64(r.For/windowLength), 2*s.longest) {
			s.firing = true
			r.fireRate(w, s, n, median)
		}
	default:
		s.ends()
		s.usual.add(n)
	}
}

// low reports whether a rate is far below a steady baseline.
func (r *launchCollapse) low(s *launchState, n, median float64) bool {
	all := len(s.usual.values)
	return all >= warmWindows && 5*s.usual.within(median/2, 2*median) >= 4*all &&
		median >= float64(r.MinPerSecond)*windowLength.Seconds() && n < float64(r.Percent)/100*median
}

// ends ends a low phase.
func (s *launchState) ends() {
	s.longest = max(s.longest, s.windows)
	s.windows, s.firing = 0, false
}

func (r *launchCollapse) stopped(w *Window, s *launchState) {
	if !s.firing {
		return
	}
	if s.idle++; s.idle >= oddWindows {
		s.ends()
		r.set.book.Clear(r.key(w.Process, ""), w.end(), "the process launches nothing any more")
	}
}

// firing decides whether the alert ends.
func (r *launchCollapse) firing(w *Window, s *launchState, n, median float64) {
	switch {
	case n >= 2*float64(r.Percent)/100*median:
		s.ends()
		r.set.book.Clear(r.key(w.Process, ""), w.end(), "the rate is back to what it was")
	case s.windows >= maxFiring+uint64(r.For/windowLength):
		*s = launchState{}
		r.set.book.Clear(r.key(w.Process, ""), w.end(), "it is the usual rate now")
	}
}

func (r *launchCollapse) fireRate(w *Window, s *launchState, n, median float64) {
	seconds := windowLength.Seconds()
	span := w.spans[schema.KindLaunch]
	r.fire(w.Process, r.key(w.Process, ""), w.end(), span.to, func() alert.Alert {
		a := w.about(schema.KindLaunch, s.seqFrom)
		a.Severity, a.Since = alert.Warning, s.began(w)
		a.Value, a.Baseline = n/seconds, median/seconds
		a.Score = math.Round(100*n/median) / 100
		a.Message = fmt.Sprintf("%s (pid %d) on %s launches %.0f kernels per second, %.3g %% of its usual %.0f, "+
			"for %.0f s now. Check what it waits for: its input, its CPUs, another rank, or a GPU that throttles.",
			a.Comm, a.PID, a.Host, a.Value, 100*a.Score, a.Baseline, float64(s.windows)*seconds)
		return a
	})
}

func (s *launchState) code(c *snapshot.Codec) {
	s.streak.code(c)
	s.usual.code(c)
	snapshot.Uint(c, &s.longest, &s.idle)
}
