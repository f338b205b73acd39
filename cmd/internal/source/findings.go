package source

import (
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Findings counts events that do not fit together.
type Findings struct {
	UnmatchedFrees  uint64 `json:"unmatched_frees"` // of memory whose allocation was not seen
	Reallocations   uint64 `json:"reallocations"`   // over live memory: its free was not seen
	LateFrees       uint64 `json:"late_frees"`      // of a life that such an allocation has ended
	UnknownContexts uint64 `json:"unknown_contexts"`
	Failed          uint64 `json:"failed_calls"`     // of the memory functions
	SizeMismatches  uint64 `json:"size_mismatches"`  // frees of another size than the allocation; of Nsight
	ImpossibleSizes uint64 `json:"impossible_sizes"` // rows of Nsight with 2^48 bytes or more: left out
	UnknownKinds    uint64 `json:"unknown_kinds"`    // memory events of Nsight: in no figure
}

// quality is what a fold found in a range, by process.
type quality struct {
	found  map[*process.Info]*leak.Counters
	failed map[schema.ProcessID]uint64 // calls that failed before the range
	ended  map[schema.ProcessID]bool   // before the range
	late   map[schema.ProcessID]bool   // selected, by their launches, copies or waits; they ran before gputap did
}

// evidence counts processes whose memory is not completely known. That of silent ones is not known at all.
type evidence struct {
	selected          bool // there is a process
	late, gap, silent uint64
	moved             uint64 // processes with events in two shards
}

// note takes the state at the beginning of the range.
func (q *quality) note(before leak.Report) {
	q.failed, q.ended = map[schema.ProcessID]uint64{}, map[schema.ProcessID]bool{}
	for i := range before.Processes {
		p := &before.Processes[i]
		q.failed[p.ID], q.ended[p.ID] = failedCalls(p), p.Ended
	}
}

// add counts a contradiction of a process in the range.
func (q *quality) add(of *process.Info, c leak.Counters) {
	n := q.found[of]
	if n == nil {
		n = &leak.Counters{}
		q.found[of] = n
	}
	n.UnmatchedFrees += c.UnmatchedFrees
	n.ReallocOverLive += c.ReallocOverLive
	n.LateFrees += c.LateFrees
	n.UnknownContexts += c.UnknownContexts
}

// sum adds what was found of the processes that the range selects. Those that ended before the range do not count.
func (q *quality) sum(end leak.Report, r *Range, f *Findings, e *evidence) {
	for of, n := range q.found {
		if r.Selects(of) {
			f.UnmatchedFrees += n.UnmatchedFrees
			f.Reallocations += n.ReallocOverLive
			f.LateFrees += n.LateFrees
			f.UnknownContexts += n.UnknownContexts
		}
	}
	for i := range end.Processes {
		p := &end.Processes[i]
		delete(q.late, p.ID)
		if !r.Selects(&p.Info) || q.ended[p.ID] {
			continue
		}
		e.selected = true
		failed := failedCalls(p)
		f.Failed += failed - min(failed, q.failed[p.ID])
		switch p.Evidence {
		case "late":
			e.late++
		case "gap":
			e.gap++
		}
	}
	e.silent += uint64(len(q.late))
	e.selected = e.selected || e.silent > 0
}

// noteLate takes the processes of a batch of launches, copies or waits.
func (q *quality) noteLate(b *schema.Batch, r *Range) {
	for i := range b.Processes {
		if p := &b.Processes[i]; p.Late && r.SelectsRow(b, p) {
			q.late[b.ID(p)] = true
		}
	}
}

func failedCalls(p *leak.Process) (n uint64) {
	for i := range p.Calls {
		n += p.Calls[i].Failed
	}
	return n
}

// missing returns sentences about the processes.
func (e *evidence) missing() (texts []string) {
	if e.late > 0 {
		texts = append(texts, app.Plural(e.late, "process", "processes")+" ran before gputap did: earlier "+
			"allocations are unknown")
	}
	if e.silent > 0 {
		texts = append(texts, app.Plural(e.silent, "process", "processes")+" ran before gputap did and called no "+
			"memory function since: their memory is unknown")
	}
	if e.gap > 0 {
		texts = append(texts, "events of "+app.Plural(e.gap, "process", "processes")+" were lost")
	}
	if e.moved > 0 {
		texts = append(texts, "the number of shards changed within the range, and "+app.Plural(e.moved, "process",
			"processes")+" moved to another shard: the figures are wrong, so choose a range before or after the change")
	}
	return texts
}
