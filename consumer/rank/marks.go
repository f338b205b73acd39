package rank

import "github.com/gputap/gputap/schema"

const (
	unit        = 125  // ns: times within a bin. A copy and a launch behind it are some microseconds apart
	binUnits    = 8000 // a bin is one millisecond
	pageBins    = 1024
	maxPages    = 32 // of a process: events at most 32 s behind the tick
	minPause    = binUnits
	inside      = schema.NumActivities // a call that takes a bin or more: at its entry, and before its return
	classBits   = 3
	binDuration = unit * binUnits
)

// page holds the marks of consecutive bins: the time within the bin, then the class. The smallest first and the largest
// last mark of a bin do not depend on the order in which calls arrive. A first mark of 0: no call.
type page struct {
	number      uint64 // first bin / pageBins
	first, last [pageBins]uint16
}

// call marks the entry and the return of a call.
func (f *Fold) call(p *proc, class schema.Activity, entry, ret schema.KTime) {
	from, to := uint64(entry)/unit, uint64(ret)/unit
	if within := inside; to-from >= minPause {
		f.mark(p, from, class, within)
		f.mark(p, to, within, class)
		return
	}
	f.mark(p, from, class, class)
	f.mark(p, to, class, class)
}

// mark adds a moment in units. before is the class that ends a pause there, after the one that begins a pause.
func (f *Fold) mark(p *proc, at uint64, before, after schema.Activity) {
	bin := at / binUnits
	pg := p.pages[bin/pageBins%maxPages]
	if pg == nil || pg.number != bin/pageBins || bin < p.host.done {
		if pg = f.page(p, bin); pg == nil {
			return
		}
	}
	i := bin % pageBins
	within := uint16(at%binUnits) << classBits
	if m := within | uint16(before); pg.first[i] == 0 || m < pg.first[i] {
		pg.first[i] = m
	}
	pg.last[i] = max(pg.last[i], within|order(after))
}

// order orders the classes of calls at one time: a launch follows the return of a sync, and the entry of a call that
// takes a bin or more is the last. It is its own inverse.
func order(class schema.Activity) uint16 {
	if class == inside {
		return uint16(inside)
	}
	return uint16(inside - class)
}

// page returns the page of a bin, or nil if the window of the bin is closed. Events far ahead displace the oldest ones,
// whose windows then lack calls.
func (f *Fold) page(p *proc, bin uint64) *page {
	if bin < p.host.done {
		return nil
	}
	number := bin / pageBins
	at := &p.pages[number%maxPages]
	switch {
	case *at == nil:
		*at = f.newPage()
	case (*at).number > number:
		p.host.freeze(endOfPage(number))
		return nil
	case (*at).number < number:
		p.host.freeze(endOfPage((*at).number))
		**at = page{}
	}
	(*at).number = number
	return *at
}

func endOfPage(number uint64) schema.KTime { return schema.KTime(number+1) * pageBins * binDuration }

func (f *Fold) newPage() *page {
	if n := len(f.pages); n > 0 {
		pg := f.pages[n-1]
		f.pages = f.pages[:n-1]
		return pg
	}
	return &page{}
}

// release takes the pages of a process back.
func (f *Fold) release(p *proc) { f.releaseBefore(p, ^uint64(0)) }

func (f *Fold) releaseBefore(p *proc, number uint64) {
	for i, pg := range p.pages {
		if pg == nil || pg.number >= number {
			continue
		}
		p.pages[i] = nil
		*pg = page{}
		if len(f.pages) < maxPages {
			f.pages = append(f.pages, pg)
		}
	}
}

// classOf returns the class of a last mark.
func classOf(last uint16) schema.Activity {
	return schema.Activity(order(schema.Activity(last % (1 << classBits))))
}

// find returns the first bin with a call in [from, to).
func (p *proc) find(from, to uint64) (pg *page, bin uint64) {
	for from < to {
		number := from / pageBins
		end := min(to, (number+1)*pageBins)
		if pg = p.pages[number%maxPages]; pg != nil && pg.number == number {
			for ; from < end; from++ {
				if pg.first[from%pageBins] != 0 {
					return pg, from
				}
			}
		}
		from = end
	}
	return nil, to
}
