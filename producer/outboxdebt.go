package producer

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// debt is what a run lost, and how much of it batches told that were acked.
type debt struct {
	lost, told uint64
	first      uint64 // no file of the run has a smaller number; 0 if an earlier program kept none
}

// runOf is the run of a batch.
func (o *outbox) runOf(e *encoded) string {
	if e.from != nil {
		return e.from.run
	}
	return o.run
}

// told takes off a debt what a batch tells that was acked.
func (o *outbox) told(e *encoded, events uint64) {
	d := o.debts[o.runOf(e)]
	d.told = max(d.told, events)
	o.debts[o.runOf(e)] = d
}

// bequeathed are the earlier runs that owe something while nothing of them waits any more or is in flight, and what they owe. A
// file that could not be read may tell it at a later start, if it may be theirs.
func (s *spool) bequeathed() (runs []string, events uint64) {
	o := s.outbox
	for run, d := range o.debts {
		if run == o.run || d.lost <= d.told {
			continue
		}
		flies := func(e *encoded) bool { return e != nil && e.from != nil && e.from.run == run }
		waits := o.holds(run) || o.lastKept > 0 && o.lastKept >= d.first
		if !waits && !slices.ContainsFunc(s.inFlight[:], flies) {
			runs, events = append(runs, run), events+d.lost-d.told
		}
	}
	return runs, events
}

// inherit makes what runs owe a loss of the present one, when the cursor on the disk says so.
func (s *spool) inherit(runs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, run := range runs {
		d := s.outbox.debts[run]
		s.dropped += d.lost - d.told
		d.told = d.lost // its directory may go and come back
		s.outbox.debts[run] = d
	}
}

// holds reports whether something of a run waits.
func (o *outbox) holds(run string) bool {
	for _, list := range o.segments {
		if slices.ContainsFunc(list, func(s *segment) bool { return s.run == run }) {
			return true
		}
	}
	return false
}

// tells is how much the batch in flight tells that its run had lost; 0 where all is told already.
func (s *spool) tells(kind schema.Kind) uint64 {
	s.mu.Lock()
	e, o := s.inFlight[kind], s.outbox
	owed := o != nil && !e.refused && s.owes(o.runOf(e))
	s.mu.Unlock()
	if owed && e.from != nil && e.behind() == e.from.end && e.from.lost > 0 {
		return e.from.lost
	}
	var b schema.Batch
	if !owed || schema.NewDecoder().Decode(e.data, &b) != nil {
		return 0
	}
	return b.Lost[schema.LossSpool]
}

func (s *spool) owes(run string) bool {
	d := s.outbox.debts[run]
	if run == s.outbox.run {
		d.lost = s.dropped
	}
	return d.lost > d.told
}
