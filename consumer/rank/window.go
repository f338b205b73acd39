package rank

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// window numbers the windows in wall time.
type window uint64

const (
	length     = schema.RankWindow
	maxOpen    = 16                                // windows of a process
	maxCatchUp = 14                                // windows that a tick closes; after a longer silence it drops them
	maxSilent  = window(10 * time.Minute / length) // without a call, until a process counts as ended
	classes    = int(schema.NumActivities)
)

// proc is one rank.
type proc struct {
	host   *host
	row    schema.Process
	from   window // the first complete one
	silent window // closed windows in a row without a call
	ended  bool
	class  schema.Activity // of the last call in closed windows; NoActivity: there was none
	at     uint64          // its time, in units
	pages  [maxPages]*page
	open   [maxOpen]struct {
		number window // 1 + number; 0: not in use
		sums
	}
}

func (p *proc) gone() bool { return p.ended || p.silent >= maxSilent }

// sums are the calls of one window, by class.
type sums [classes]struct {
	count, bytes uint64
	took         schema.KTime
}

// pauses are the pauses of one window by the classes before and after, in units.
type pauses [classes][classes]struct{ count, units uint64 }

func (h *host) windowOf(t schema.KTime) window {
	return window(max(0, int64(t)+h.offset) / int64(length))
}

// start returns the boot time at which a window begins.
func (h *host) start(w window) schema.KTime {
	return schema.KTime(max(0, int64(w)*int64(length)-h.offset))
}

// bins returns the bins of a window.
func (h *host) bins(w window) (from, to uint64) {
	return uint64(h.start(w)) / binDuration, uint64(h.start(w+1)) / binDuration
}

// goTo makes a window the next one to close.
func (h *host) goTo(w window) {
	h.next = w
	h.done, _ = h.bins(w)
}

// sums returns the sums of the window of t; nil if it is closed.
func (p *proc) sums(t schema.KTime) *sums { return p.sumsOf(p.host.windowOf(t)) }

// sumsOf returns the sums of a window; nil if it is closed. Windows far ahead displace the oldest ones, which then lack
// calls.
func (p *proc) sumsOf(w window) *sums {
	s, h := &p.open[w%maxOpen], p.host
	switch {
	case w < h.next:
		return nil
	case s.number > w+1:
		h.freeze(h.start(w))
		return nil
	case s.number < w+1:
		if s.number > 0 {
			h.freeze(h.start(s.number - 1))
		}
		s.number, s.sums = w+1, sums{}
	}
	return &s.sums
}

// wait adds a wait to the windows that it spans.
func (p *proc) wait(from, to schema.KTime) {
	last := p.host.windowOf(to)
	for w := max(p.host.windowOf(from), p.host.next, last-min(last, maxOpen)); w <= last; w++ {
		if s := p.sumsOf(w); s != nil {
			s[schema.Syncing].took += min(to, p.host.start(w+1)) - max(from, p.host.start(w))
		}
	}
}

// close returns the calls and the pauses of a window and goes on to the next one. A pause at its end counts up to the
// end of the next window, even if the tick is later. So all hosts of a job see the same pauses.
func (p *proc) close(w window) (calls sums, idle pauses) {
	s := &p.open[w%maxOpen]
	if s.number == w+1 {
		calls = s.sums
	}
	if s.number <= w+1 { // else a newer window has displaced it
		s.number, s.sums = 0, sums{}
	}
	from, to := p.host.bins(w)
	_, through := p.host.bins(w + 1)
	begin, end := uint64(p.host.start(w))/unit, uint64(p.host.start(w+1))/unit
	p.silent++
	pg, bin := p.find(from, to)
	for ; pg != nil; pg, bin = p.find(bin+1, to) {
		first, last := pg.first[bin%pageBins], pg.last[bin%pageBins]
		at := bin*binUnits + uint64(first>>classBits)
		idle.add(p, schema.Activity(first%(1<<classBits)), at, begin, min(at, end))
		p.class, p.at = classOf(last), bin*binUnits+uint64(last>>classBits)
		p.silent = 0
	}
	if pg, bin = p.find(to, through); pg != nil {
		first := pg.first[bin%pageBins]
		idle.add(p, schema.Activity(first%(1<<classBits)), bin*binUnits+uint64(first>>classBits), begin, end)
	} else {
		idle.add(p, schema.NoActivity, max(end, through*binUnits), begin, end)
	}
	return calls, idle
}

// add adds the pause between the last call and one of class next at a time, as far as it lies between begin and end.
func (i *pauses) add(p *proc, next schema.Activity, at, begin, end uint64) {
	if p.class == schema.NoActivity || p.class == inside || next == inside || at < p.at+minPause {
		return
	}
	if begin = max(begin, p.at); begin < end {
		of := &i[p.class][next]
		of.count++
		of.units += end - begin
	}
}
