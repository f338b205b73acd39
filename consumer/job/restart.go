package job

import (
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// newcomer returns a process of a batch that is not the member of its rank, nil if there is none. replaces reports
// whether its rank has another member. A process whose rank has another member comes first.
func (j *job) newcomer(b *schema.Batch) (found *schema.Process, replaces bool) {
	for i := range b.Processes {
		p := &b.Processes[i]
		if p.Rank == 0 || p.Rank > maxRanks {
			continue
		}
		switch m := j.members[p.Rank-1]; {
		case m == nil && found == nil:
			found = p
		case m != nil && m.ID != idOf(b, p):
			return p, true
		}
	}
	return found, false
}

// restart ends what is known of a job, except the clocks of its hosts: the job was silent, and a process that started
// after its newest window now sends. The ends of its earlier processes were not seen. begun is the number of the window
// in which the process started, and at that time by the clock of its host.
func (f *Fold) restart(j *job, begun int64, at time.Time) {
	for len(j.firing) > 0 {
		f.clear(j, j.firing[0].rank, at, "the job started again")
	}
	// windows of the earlier processes, from a shard that is late, are closed
	j.next, j.started = max(j.newest+1, begun-1), begun
	j.trim(len(j.members))
	f.members -= len(j.members)
	clear(j.members)
	j.open, j.scales, j.missing, j.waiting = nil, newScales(), nil, 0
}

// shrink removes the members above the number of ranks: the job started again with fewer.
func (f *Fold) shrink(j *job, at time.Time) {
	if j.ranks == 0 || len(j.members) <= int(j.ranks) {
		return
	}
	for _, rank := range slices.Sorted(maps.Keys(j.members)) {
		if rank >= j.ranks {
			f.replace(j, rank, at, "the job has fewer ranks now")
			delete(j.members, rank)
			f.members--
		}
	}
}

// trim drops the clocks of boots without a rank, if the job knows more clocks than most.
func (j *job) trim(most int) {
	if len(j.shifts) <= most {
		return
	}
	here := make(map[boot]bool, len(j.members))
	for _, m := range j.members {
		here[boot{m.ID.Host, m.ID.BootID}] = true
	}
	maps.DeleteFunc(j.shifts, func(of boot, _ int64) bool { return !here[of] })
}
