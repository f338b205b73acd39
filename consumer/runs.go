package consumer

import "github.com/gputap/gputap/schema"

// maxRuns bounds half of what runs remembers: a shard has a few hundred hosts, and a host one run
// for each start of its producer.
const maxRuns = 1 << 15

// runID is one life of one producer.
type runID struct {
	cluster, host, boot string
	run                 uint64
}

// runState is what is known of a run: the last seq of each kind and its latest loss counters,
// which are cumulative.
type runState struct {
	seq  [schema.NumKinds]uint64
	lost [schema.NumLosses]uint64
}

// accept gives the last seq before this batch and takes note of the batch.
func (s *runState) accept(h *schema.Header) (last uint64) {
	for cause, n := range h.Lost {
		s.lost[cause] = max(s.lost[cause], n)
	}
	last = s.seq[h.Kind]
	s.seq[h.Kind] = max(last, h.Seq)
	return last
}

// runs finds the state of a run. When there are too many, those that were not heard of while
// maxRuns others were are forgotten; their losses stay in the sum.
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
		add(&r.forgotten, r.old)
		r.old, r.young = r.young, map[runID]*runState{}
	}
	r.young[id] = s
	return s
}

func (r *runs) lost() [schema.NumLosses]uint64 {
	sum := r.forgotten
	add(&sum, r.young)
	add(&sum, r.old)
	return sum
}

func add(sum *[schema.NumLosses]uint64, states map[runID]*runState) {
	for _, s := range states {
		for cause, n := range s.lost {
			sum[cause] += n
		}
	}
}
