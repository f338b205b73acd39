package producer

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// debt is what a run lost, and how much of it batches told that were acked.
type debt struct{ lost, told uint64 }

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

// inherit takes the debts of earlier runs of which nothing waits any more and nothing is in flight. What could not be read may
// tell them at a later start.
func (o *outbox) inherit(inFlight ...*encoded) (events uint64) {
	if o.kept != [schema.NumKinds]uint64{} {
		return 0
	}
	for run, d := range o.debts {
		flies := slices.ContainsFunc(inFlight, func(e *encoded) bool { return e != nil && e.from != nil && e.from.run == run })
		if run != o.run && !flies && !o.holds(run) {
			events += d.lost - min(d.told, d.lost)
			delete(o.debts, run)
			o.taken = true
		}
	}
	return events
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
