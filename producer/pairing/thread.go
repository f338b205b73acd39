package pairing

import (
	"cmp"
	"slices"
)

// Thread is what pairing remembers of one thread. The zero Thread is ready.
type Thread struct {
	notes  []threadNote
	queued bool
	waited uint64 // end of the last wait, if no launch followed yet; else 0
	ran    uint64 // entry of the latest launch
	lostAt uint64 // see Pairs.lostAt; up to here the thread is reset
	full   uint64 // up to here notes were refused
}

// threadNote is a wait, or launches without a wait between them.
type threadNote struct {
	wait     bool
	from, to uint64 // entries of the first and the last launch; for a wait both are its end
	work     Work   // the first launch
}

// extend adds a launch to the last note, if that is of launches and earlier.
func (t *Thread) extend(at uint64) bool {
	n := len(t.notes) - 1
	if n < 0 || t.notes[n].wait || at < t.notes[n].to {
		return false
	}
	t.notes[n].to = at
	return true
}

// compare orders notes by time, a wait before a launch.
func (n threadNote) compare(to threadNote) int {
	if by := cmp.Compare(n.from, to.from); by != 0 || n.wait == to.wait {
		return by
	}
	if n.wait {
		return -1
	}
	return 1
}

// finishThread finds the gaps of one thread.
func (p *Pairs) finishThread(t *Thread, through uint64) {
	doubt := max(p.lostAt, t.full)
	if t.lostAt != doubt {
		if t.lostAt = doubt; t.waited != 0 {
			p.Unknown++
		}
		t.waited = 0
	}
	if !slices.IsSortedFunc(t.notes, threadNote.compare) {
		slices.SortFunc(t.notes, threadNote.compare)
	}
	done := 0
	for ; done < len(t.notes) && t.notes[done].from <= through; done++ {
		p.thread(t, &t.notes[done])
	}
	t.notes = rest(t.notes, done)
}

func (p *Pairs) thread(t *Thread, n *threadNote) {
	switch {
	case !n.wait:
		if t.waited != 0 {
			p.Gaps = append(p.Gaps, Gap{n.work, n.from - t.waited})
		}
		t.waited, t.ran = 0, max(t.ran, n.to)
	case n.from <= t.lostAt || n.from < t.ran: // launches on both sides share a note: the first after it is not known
		p.Unknown++
		t.waited = 0
	default:
		t.waited = n.from
	}
}

// rest returns the notes after the first ones, without keeping much memory.
func rest[N any](notes []N, done int) []N {
	if done == len(notes) && cap(notes) > keptNotes {
		return nil
	}
	return slices.Delete(notes, 0, done)
}
