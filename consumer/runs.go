package consumer

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// maxRuns bounds each half of runs. A shard has a few hundred hosts, and a host has one run for each start of its
// producer.
const maxRuns = 1 << 15

// runID is one life of one producer.
type runID struct {
	cluster, host, boot string
	run                 uint64
}

// runState is the last seq of each kind and the latest loss counters of a run, which are cumulative.
type runState struct {
	seq  [schema.NumKinds]uint64
	lost [schema.NumLosses]uint64
	ends []end // of heartbeats, in order: a batch before them has not come yet
}

// end is how far a run is complete when the last seq of each kind has come.
type end struct {
	seq     [schema.NumKinds]uint64
	through schema.KTime
}

// maxEnds bounds the heartbeats that wait for batches: ten minutes, or two of a host with ranks. Above it, windows
// close at later ones.
const maxEnds = 64

// expect records the ends of a heartbeat for the kinds of a fold.
func (s *runState) expect(ends []schema.End, kinds []schema.Kind) {
	e := end{}
	for _, k := range ends {
		if !slices.Contains(kinds, k.Kind) {
			continue
		}
		if e.through == 0 || k.Through < e.through {
			e.through = k.Through
		}
		e.seq[k.Kind] = k.Seq
	}
	if e.through == 0 {
		return
	}
	if len(s.ends) == maxEnds {
		s.ends = slices.Delete(s.ends, 0, 1)
	}
	s.ends = append(s.ends, e)
}

// complete returns the time up to which all batches have now come; 0 if that is the same as before.
func (s *runState) complete() (through schema.KTime) {
	for len(s.ends) > 0 {
		for kind := range s.seq {
			if !s.reached(kind) {
				return through
			}
		}
		through = s.ends[0].through
		s.ends = slices.Delete(s.ends, 0, 1)
	}
	return through
}

// reached reports whether the batches of a kind have come up to the first end. If nothing of the kind has come and two
// heartbeats in a row name the same seq, its batches were removed before the reader began.
func (s *runState) reached(kind int) bool {
	seq := s.ends[0].seq[kind]
	removed := s.seq[kind] == 0 && len(s.ends) > 1 && s.ends[1].seq[kind] == seq
	return s.seq[kind] >= seq || removed
}

// accept records a batch and returns the last seq of its kind before.
func (s *runState) accept(h *schema.Header) (last uint64) {
	for cause, n := range h.Lost {
		s.lost[cause] = max(s.lost[cause], n)
	}
	last = s.seq[h.Kind]
	s.seq[h.Kind] = max(last, h.Seq)
	return last
}

// runs holds the state of each run. A run is evicted when maxRuns other runs have published since its last batch; its
// losses stay in the sum.
type runs struct {
	young, old map[runID]*runState
	forgotten  [schema.NumLosses]uint64
}

func newRuns() runs { return runs{young: map[runID]*runState{}} }

func (r *runs) of(h *schema.Header) *runState {
	id := runID{h.Cluster, h.Host, h.BootID, h.Run}
	if s := r.young[id]; s != nil {
		return s
	}
	s := r.old[id]
	if s == nil {
		s = &runState{}
	}
	delete(r.old, id)
	if len(r.young) >= maxRuns {
		addLosses(&r.forgotten, r.old)
		r.old, r.young = r.young, map[runID]*runState{}
	}
	r.young[id] = s
	return s
}

// forgetKinds forgets which batches of some kinds came.
func (r *runs) forgetKinds(kinds [schema.NumKinds]bool) {
	for _, half := range []map[runID]*runState{r.young, r.old} {
		for _, s := range half {
			for kind, forget := range kinds {
				if forget {
					s.seq[kind] = 0
				}
			}
		}
	}
}

func (r *runs) lost() [schema.NumLosses]uint64 {
	sum := r.forgotten
	addLosses(&sum, r.young)
	addLosses(&sum, r.old)
	return sum
}

func addLosses(sum *[schema.NumLosses]uint64, states map[runID]*runState) {
	for _, s := range states {
		for cause, n := range s.lost {
			sum[cause] += n
		}
	}
}
