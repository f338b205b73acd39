package answer

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/job"
	"github.com/gputap/gputap/consumer/query"
)

// jobRows are the jobs of which a rank is selected.
func jobRows(f *job.Fold, q *query.Question) (iter.Seq[any], int) {
	rows := slices.DeleteFunc(f.Report(), func(j job.Job) bool {
		return !slices.ContainsFunc(j.Members, func(m job.Member) bool {
			return q.Process(&query.Subject{Cluster: m.ID.Cluster, Host: m.ID.Host, User: m.User, Comm: m.Comm,
				Job: m.Job, UID: m.UID, PID: m.ID.PID})
		})
	})
	return cut(rows, q.Limit)
}

// FleetJob is a job with its ranks.
type FleetJob struct {
	Cluster   string    `json:"cluster"`
	Job       string    `json:"job"`
	State     string    `json:"state"`
	Ranks     uint32    `json:"ranks"`         // expected; 0: unknown
	Seen      int       `json:"ranks_seen"`    // that run
	Missing   []uint32  `json:"missing_ranks"` // in the last window
	Slow      []uint32  `json:"slow_ranks"`    // that hold up the others
	Waiting   float64   `json:"waiting"`       // share of the last window in which the median rank waits for the GPU
	Hosts     []string  `json:"hosts"`
	User      string    `json:"user"`
	UID       uint32    `json:"uid"`
	Processes []JobRank `json:"processes"`
}

// JobRank is the process of one rank.
type JobRank struct {
	Rank    uint32    `json:"rank"`
	Host    string    `json:"host"`
	PID     uint32    `json:"pid"`
	Start   time.Time `json:"start"`
	Comm    string    `json:"comm"`
	Waiting float64   `json:"waiting"` // share of the time
}

// Jobs lists the jobs of which gputap-anomaly gets summaries of ranks.
func (f *Fleet) Jobs(ctx context.Context, q query.Question) (*List[FleetJob], error) {
	q.What = whatJobs
	list, total, reach, err := rows[job.Job](ctx, f, q, "anomaly")
	if err != nil {
		return nil, err
	}
	items := make([]FleetJob, 0, len(list))
	for i := range list {
		items = append(items, jobOf(&list[i]))
	}
	return &List[FleetJob]{Time: time.Now().UTC(), Reach: reach, Total: total, Items: items}, nil
}

func jobOf(j *job.Job) FleetJob {
	one := FleetJob{Cluster: j.Cluster, Job: j.Name, State: j.State, Ranks: j.Ranks, Seen: len(j.Members),
		Missing: append([]uint32{}, j.Missing...), Slow: append([]uint32{}, j.Slow...), Waiting: j.Waiting,
		Hosts: []string{}, Processes: []JobRank{}}
	for i := range j.Members {
		m := &j.Members[i]
		if i == 0 {
			one.User, one.UID = m.User, m.UID
		}
		one.Hosts = append(one.Hosts, m.ID.Host)
		one.Processes = append(one.Processes, JobRank{m.Rank - 1, m.ID.Host, m.ID.PID, m.Start, m.Comm, m.Waiting})
	}
	slices.Sort(one.Hosts)
	one.Hosts = slices.Compact(one.Hosts)
	return one
}
