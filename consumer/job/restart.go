package job

import (
	"maps"
	"slices"
	"time"
)

// restart ends what is known of a job, except the clocks of its hosts: the job was silent, and a process that started
// after its newest window now sends. The ends of its earlier processes were not seen. at is when the process started,
// by the clock of its host.
func (f *Fold) restart(j *job, at time.Time) {
	for len(j.firing) > 0 {
		f.clear(j, j.firing[0].rank, at, "the job started again")
	}
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
