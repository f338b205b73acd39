package job

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gputap/gputap/consumer/process"
)

// States of a Job.
const (
	Running    = "running"
	Straggler  = "straggler"  // an alert of the rule would fire or fires
	Incomplete = "incomplete" // ranks are missing: it is not judged
	Small      = "small"      // fewer than four ranks: it is not judged
	Unknown    = "unknown"    // the number of ranks is unknown: it is not judged
)

// Job is the report of one job.
type Job struct {
	Cluster, Name string
	Ranks         uint32 // expected; 0: unknown
	State         string
	Members       []Member // by rank
	Missing       []uint32 // ranks that the last window lacked
	Slow          []uint32 // ranks that hold up the others
	Waiting       float64  // share of the last window that the median rank spent in calls that wait for the GPU
}

// Member is the process of one rank.
type Member struct {
	process.Info
	Waiting float64 // share of the last window in calls that wait for the GPU
}

// Report returns all jobs by cluster and name.
func (f *Fold) Report() []Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Job, 0, len(f.jobs))
	for _, j := range f.jobs {
		one := Job{Cluster: j.id.Cluster, Name: j.id.Host, Ranks: j.ranks, State: j.state(), Waiting: round(j.waiting),
			Missing: j.absent(), Slow: j.slow()}
		for _, rank := range slices.Sorted(maps.Keys(j.members)) {
			m := j.members[rank]
			one.Members = append(one.Members, Member{m.Info, round(m.waiting)})
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// absent returns the ranks that the last closed window lacks, and those that were never seen.
func (j *job) absent() []uint32 {
	absent := slices.Clone(j.missing)
	for rank := range j.ranks {
		if j.members[rank] == nil && !slices.Contains(absent, rank) {
			absent = append(absent, rank)
		}
	}
	slices.Sort(absent)
	return absent
}

func (j *job) state() string {
	switch {
	case j.ranks == 0:
		return Unknown
	case j.ranks < leastRanks:
		return Small
	case len(j.slow()) > 0:
		return Straggler
	case len(j.missing) > 0 || len(j.members) < int(j.ranks):
		return Incomplete
	}
	return Running
}

// slow returns the ranks of firing alerts, and the one that enough windows are against.
func (j *job) slow() (ranks []uint32) {
	for _, s := range j.firing {
		ranks = append(ranks, s.rank)
	}
	for i := range j.scales {
		c := &j.scales[i]
		for _, o := range c.last {
			if o.against > 0 && c.against(o.against-1) >= toFire {
				ranks = append(ranks, o.against-1)
			}
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// round keeps four digits behind the point.
func round(v float64) float64 { return math.Round(1e4*v) / 1e4 }
