package job

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/consumer/snapshot"
)

const (
	numScales   = 2
	longWindows = 8
)

// scaleWindows is how many windows make one of a scale. A training step may last longer than a window: then most
// windows have no end of a step, and only sums of several tell who waits.
var scaleWindows = [numScales]int{1, longWindows}

// scale is what windows of one length say.
type scale struct {
	last   []outcome         // of the windows that say something, at most four
	spread map[place]float64 // of the ranks: the largest of earlier windows, halved by each later one
	sum    window            // of the windows since the last judged one
	added  int               // to sum
}

func newScales() (all [numScales]scale) {
	for i := range all {
		all[i].spread = map[place]float64{}
		all[i].sum.cells = map[uint32]*cell{}
	}
	return all
}

// add adds a window to the sum. It returns the window to judge, or nil. Windows of other processes, and those behind a
// missing one, begin a new sum.
func (s *scale) add(w *window, windows int) *window {
	if windows == 1 {
		return w
	}
	if s.added == windows || w.number != s.sum.number+1 || !s.sameProcesses(w) {
		clear(s.sum.cells)
		s.added = 0
	}
	s.added++
	s.sum.number = w.number
	for rank, c := range w.cells {
		s.sum.add(rank, c, windows)
	}
	if s.added < windows {
		return nil
	}
	return &s.sum
}

func (s *scale) sameProcesses(w *window) bool {
	for rank, c := range w.cells {
		if of := s.sum.cells[rank]; of == nil || of.id != c.id {
			return false
		}
	}
	return len(w.cells) == len(s.sum.cells)
}

// add adds one of several windows of a rank.
func (w *window) add(rank uint32, c *cell, windows int) {
	of := w.cells[rank]
	if of == nil {
		of = &cell{}
		w.cells[rank] = of
	}
	of.id, of.number, of.run, of.seq = c.id, c.number, c.run, c.seq
	of.launches += c.launches
	for _, at := range c.waits {
		i := slices.IndexFunc(of.waits, func(known wait) bool { return known.place == at.place })
		if i < 0 {
			i = len(of.waits)
			of.waits = append(of.waits, wait{place: at.place})
		}
		of.waits[i].share += at.share / float64(windows)
	}
}

// keep keeps a verdict.
func (s *scale) keep(o outcome) {
	s.last = append(s.last, o)
	if len(s.last) > kept {
		s.last = slices.Delete(s.last, 0, 1)
	}
}

// against returns how many of the last windows are against a rank.
func (s *scale) against(rank uint32) (windows int) {
	for i := range s.last {
		if s.last[i].against == rank+1 {
			windows++
		}
	}
	return windows
}

func (s *scale) code(c *snapshot.Codec, id snapshot.HostID) {
	snapshot.List(c, &s.last, leastOutcome, func(o *outcome) { o.code(c) })
	snapshot.Map(c, &s.spread, leastSpreads, cmp.Compare[place], func(at *place, spread *float64) {
		codePlace(c, at)
		c.Float64(spread)
	})
	c.Below(&s.added, longWindows+1)
	s.sum.code(c, id)
	if len(s.last) > kept {
		c.Fail("%d verdicts", len(s.last))
	}
}
