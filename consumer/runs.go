package consumer

import "github.com/gputap/gputap/schema"

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
