package answer

import (
	"context"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// Overview is a fleet at one moment: the figures of each process that fit into one line, the hosts, and the alerts that
// fire.
type Overview struct {
	Time time.Time
	Reach
	Processes []*Activity
	Hosts     int             // 0 without gputap-leak
	Heard     int             // hosts, in the last 30 s
	Firing    []anomaly.Alert // newest first
	NoMemory  bool            // gputap-leak did not answer: hosts and memory are unknown
	NoAlerts  bool            // gputap-anomaly or gputap-leak did not answer: more alerts may fire
}

// Activity is a process with its rates. Its details, such as Calls and Kernels, are empty.
type Activity struct {
	*report.Process
	LaunchRate *float64 // launches per second, in the last minute if it lived so long; nil: unknown
	WaitShare  *float64 // seconds of waiting by second of its life, summed over threads; nil: unknown
	Copied     *uint64  // bytes; nil: unknown
}

// SeveralClusters reports whether the processes are of more than one cluster.
func (o *Overview) SeveralClusters() bool {
	return slices.ContainsFunc(o.Processes, func(a *Activity) bool { return a.Cluster != o.Processes[0].Cluster })
}

// TopItem is a process of gputap top -o json.
type TopItem struct {
	Who
	Job                string     `json:"job"`
	Rank               *uint32    `json:"rank"`  // null if unknown, as all below
	State              string     `json:"state"` // as the screen shows it
	Heard              *time.Time `json:"heard"`
	LiveBytes          *uint64    `json:"live_bytes"`
	LiveAllocations    *uint64    `json:"live_allocations"`
	PeakBytes          *uint64    `json:"peak_bytes"`
	UnfreedBytes       *uint64    `json:"unfreed_at_exit_bytes"`
	GrowthBytesPerHour *uint64    `json:"growth_bytes_per_hour"`
	GPUs               *uint64    `json:"gpus"` // with live memory
	LaunchesPerSecond  *float64   `json:"launches_per_second"`
	WaitShare          *float64   `json:"wait_share"`
	CopiedBytes        *uint64    `json:"copied_bytes"`
}

// Top is the answer of gputap top -o json.
type Top struct {
	List[TopItem]
	Hosts  *int            `json:"hosts"`  // null: unknown
	Heard  *int            `json:"heard"`  // hosts, in the last 30 s; null: unknown
	Firing []anomaly.Alert `json:"firing"` // newest first; null: none is known, and not every fold answered
}

// Top returns the overview in the order of its processes.
func (o *Overview) Top() *Top {
	t := &Top{Firing: o.Firing,
		List: List[TopItem]{Time: o.Time, Reach: o.Reach, Total: len(o.Processes), Items: []TopItem{}}}
	if !o.NoMemory {
		t.Hosts, t.Heard = &o.Hosts, &o.Heard
	}
	if !o.NoAlerts {
		t.Firing = append([]anomaly.Alert{}, o.Firing...) // JSON has no null
	}
	for _, a := range o.Processes {
		t.Items = append(t.Items, TopItem{
			Who: Who{a.Cluster, a.Host, a.PID, a.Start, a.Comm, a.UID, a.User}, Job: a.Job, Rank: a.Rank,
			State: a.State(), Heard: a.Heard, LiveBytes: a.Memory(a.LiveBytes),
			LiveAllocations: a.Memory(a.LiveAllocations), PeakBytes: a.Memory(a.PeakBytes),
			UnfreedBytes: a.Memory(a.UnfreedBytes), GrowthBytesPerHour: a.Growth(),
			GPUs:              a.Memory(uint64(a.BusyGPUs())),
			LaunchesPerSecond: a.LaunchRate, WaitShare: a.WaitShare, CopiedBytes: a.Copied,
		})
	}
	return t
}

// Overview asks leak, launch, bandwidth and anomaly at once. Folds that no instance runs leave their figures empty.
func (f *Fleet) Overview(ctx context.Context, filter query.Filter) (*Overview, error) {
	return f.overviewAt(ctx, filter, time.Now())
}

func (f *Fleet) overviewAt(ctx context.Context, filter query.Filter, now time.Time) (*Overview, error) {
	processes := query.Question{What: whatProcesses, Filter: filter}
	answers, shards, err := f.askEach(ctx, []asked{
		{"leak", processes},
		{"launch", processes},
		{"bandwidth", processes},
		{"leak", query.Question{What: whatHosts, Filter: filter}},
		{"anomaly", query.Question{What: whatFiring, Filter: filter}}, // alerts come last
		{"leak", query.Question{What: whatFiring, Filter: filter}},
	})
	if err != nil {
		return nil, err
	}
	o := &Overview{Time: now.UTC(), Reach: reachOf(shards, answers...)}
	slices.Sort(o.NotRunning)
	if err := o.join(answers); err != nil {
		return nil, err
	}
	silent := func(a *query.Answer) bool { return len(a.Replies) == 0 }
	o.NoMemory, o.NoAlerts = silent(answers[0]), slices.ContainsFunc(answers[4:], silent)
	list := make([]*report.Process, 0, len(o.Processes))
	for _, a := range o.Processes {
		list = append(list, a.Process)
	}
	markUnknown(list, shards, answers[0], &processes)
	return o, nil
}

// join joins the answers to the questions of Overview.
func (o *Overview) join(answers []*query.Answer) error {
	processes, err := query.Rows[memoryRow](answers[0])
	if err != nil {
		return err
	}
	launches, err := query.Rows[launch.Process](answers[1])
	if err != nil {
		return err
	}
	copies, err := query.Rows[bandwidth.Process](answers[2])
	if err != nil {
		return err
	}
	hosts, err := query.Rows[hostRow](answers[3])
	if err != nil {
		return err
	}
	o.addProcesses(processes, launches, copies)
	o.Hosts = len(hosts)
	for i := range hosts {
		if o.Time.Sub(hosts[i].Status.Heard) <= report.SilentAfter {
			o.Heard++
		}
	}
	for _, a := range answers[4:] {
		firing, err := query.Rows[anomaly.Alert](a)
		if err != nil {
			return err
		}
		o.Firing = append(o.Firing, firing...)
	}
	slices.SortStableFunc(o.Firing, func(a, b anomaly.Alert) int { return b.Time.Compare(a.Time) })
	return nil
}

func (o *Overview) addProcesses(processes []memoryRow, launches []launch.Process, copies []bandwidth.Process) {
	s := report.New(o.Time)
	for i := range processes {
		s.AddMemory(&processes[i].Process, processes[i].Heard)
	}
	for i := range launches {
		s.AddLaunches(&launches[i])
	}
	for i := range copies {
		s.AddCopies(&copies[i])
	}
	lives, at := map[schema.ProcessID]time.Duration{}, map[schema.ProcessID]*Activity{}
	for _, p := range s.Processes {
		a := &Activity{Process: p}
		o.Processes = append(o.Processes, a)
		at[p.ID()], lives[p.ID()] = a, o.Time.Sub(p.Start)
	}
	for i := range launches {
		q := &launches[i]
		if q.Life > 0 {
			lives[q.ID] = q.Life
		}
		at[q.ID].LaunchRate = perSecond(q)
	}
	for i := range copies {
		id := copies[i].ID
		a := at[id]
		a.Copied = new(uint64)
		for _, c := range a.Copies {
			*a.Copied += c.Bytes
		}
		if life := lives[id].Seconds(); a.Waits.Calls > 0 && life > 0 {
			a.WaitShare = new(a.Waits.Seconds / life)
		}
	}
}

// perSecond returns the launches per second of the last complete minute, else over the life of the process.
func perSecond(q *launch.Process) *float64 {
	switch {
	case q.HasMinute:
		return new(float64(q.LastMinute) / time.Minute.Seconds())
	case q.Life > 0:
		return new(float64(q.Launches) / q.Life.Seconds())
	}
	return nil
}
