package answer

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/job"
	"github.com/gputap/gputap/consumer/query"
)

// jobRow is one job.
type jobRow struct {
	job.Job
	Heard time.Time // when NATS stored the last summary of a rank; zero: unknown
}

// jobRows are the jobs of which a rank is selected.
func jobRows(f *job.Fold, r *consumer.Reader, q *query.Question) (iter.Seq[any], int) {
	rows := []jobRow{}
	for _, j := range f.Report() {
		if slices.ContainsFunc(j.Members, func(m job.Member) bool {
			return q.Process(&query.Subject{Cluster: m.ID.Cluster, Host: m.ID.Host, User: m.User, Comm: m.Comm,
				Job: m.Job, UID: m.UID, PID: m.ID.PID})
		}) {
			rows = append(rows, jobRow{j, r.Heard(j.Cluster, j.Name)})
		}
	}
	return cut(rows, q.Limit)
}

// FleetJob is a job with its ranks.
type FleetJob struct {
	Cluster   string     `json:"cluster"`
	Job       string     `json:"job"`
	State     string     `json:"state"`
	Ranks     uint32     `json:"ranks"`         // expected; 0: unknown
	Seen      int        `json:"ranks_seen"`    // that run
	Missing   []uint32   `json:"missing_ranks"` // in the last window
	Slow      []uint32   `json:"slow_ranks"`    // that hold up the others
	Heard     *time.Time `json:"heard"`         // when NATS stored the last summary of a rank
	Waiting   *float64   `json:"waiting"`       // share of the last window in which the median rank waits; null: no wait was seen
	Hosts     []string   `json:"hosts"`
	User      string     `json:"user"`
	UID       uint32     `json:"uid"`
	Processes []JobRank  `json:"processes"`
}

// JobRank is the process of one rank.
type JobRank struct {
	Rank    uint32    `json:"rank"`
	Host    string    `json:"host"`
	PID     uint32    `json:"pid"`
	Start   time.Time `json:"start"`
	Comm    string    `json:"comm"`
	Waiting *float64  `json:"waiting"` // share of the time; null as that of the job
}

// Jobs lists the jobs of which gputap-anomaly gets summaries of ranks.
func (f *Fleet) Jobs(ctx context.Context, q query.Question) (*List[FleetJob], error) {
	q.What = whatJobs
	list, total, reach, err := rows[jobRow](ctx, f, q, "anomaly")
	if err != nil {
		return nil, err
	}
	now, items := time.Now().UTC(), make([]FleetJob, 0, len(list))
	for i := range list {
		items = append(items, jobOf(&list[i], now))
	}
	return &List[FleetJob]{Time: now, Reach: reach, Total: total, Items: items}, nil
}

// Silent is the state of a job of which no summary of a rank has come for 30 s.
const Silent = "silent"

func jobOf(j *jobRow, now time.Time) FleetJob {
	one := FleetJob{Cluster: j.Cluster, Job: j.Name, State: j.State, Ranks: j.Ranks, Seen: len(j.Members),
		Missing: append([]uint32{}, j.Missing...), Slow: append([]uint32{}, j.Slow...),
		Hosts: []string{}, Processes: []JobRank{}}
	if !j.Heard.IsZero() {
		one.Heard = &j.Heard
		if now.Sub(j.Heard) > report.SilentAfter {
			one.State = Silent
		}
	}
	waits := slices.ContainsFunc(j.Members, func(m job.Member) bool { return m.Waiting > 0 })
	share := func(waiting float64) *float64 {
		if !waits { // or nobody watches waits
			return nil
		}
		return &waiting
	}
	one.Waiting = share(j.Waiting)
	for i := range j.Members {
		m := &j.Members[i]
		if i == 0 {
			one.User, one.UID = m.User, m.UID
		}
		one.Hosts = append(one.Hosts, m.ID.Host)
		one.Processes = append(one.Processes,
			JobRank{m.Rank - 1, m.ID.Host, m.ID.PID, m.Start, m.Comm, share(m.Waiting)})
	}
	slices.Sort(one.Hosts)
	one.Hosts = slices.Compact(one.Hosts)
	return one
}
