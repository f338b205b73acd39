package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/schema"
)

// Unknown stands in the place of a name that is not known, such as the UUID of a GPU.
const Unknown = "unknown"

// New returns a Snapshot of nothing.
func New(at time.Time) *Snapshot {
	return &Snapshot{
		Time: at.UTC(), Lost: map[string]uint64{}, Processes: []*Process{}, Alerts: []alert.Alert{}, Hosts: []Host{},
		byID: map[schema.ProcessID]*Process{},
	}
}

// Add joins the report of a fold, which a reader feeds. Coverage comes last: it only adds to processes that other folds
// know.
func (s *Snapshot) Add(fold consumer.Fold, reader *consumer.Reader) {
	switch f := fold.(type) {
	case *leak.Tracker:
		s.addTracker(f.Report(), reader)
		s.addAlerts(f.Alerts())
	case interface{ Alerts() []alert.Alert }:
		s.addAlerts(f.Alerts())
	case *launch.Histogram:
		for _, q := range f.Report() {
			s.AddLaunches(&q)
		}
	case *bandwidth.Meter:
		for _, q := range f.Report() {
			s.AddCopies(&q)
		}
	case *tensor.Fold:
		for _, q := range f.Report(0) {
			s.AddTensors(&q)
		}
	case *coverage.Fold:
		for _, row := range HostRows(f, reader) {
			s.AddHost(&row)
		}
	}
}

// addAlerts adds the alerts of a fold. Those of all folds are sorted, the oldest first.
func (s *Snapshot) addAlerts(more []alert.Alert) {
	s.Alerts = append(s.Alerts, more...)
	slices.SortStableFunc(s.Alerts, func(a, b alert.Alert) int { return a.Compare(&b) })
}

// Sort puts the process with the most live memory first.
func (s *Snapshot) Sort() {
	slices.SortStableFunc(s.Processes, func(a, b *Process) int {
		return cmp.Or(cmp.Compare(b.LiveBytes, a.LiveBytes), a.Start.Compare(b.Start), cmp.Compare(a.PID, b.PID))
	})
}

// process returns the process that all folds' reports about it are joined in.
func (s *Snapshot) process(info *process.Info) *Process {
	if p := s.byID[info.ID]; p != nil {
		return p
	}
	p := &Process{
		PID: info.ID.PID, Start: info.Start, Comm: info.Comm, Exe: info.Exe, UID: info.UID, Container: info.Container,
		Cluster: info.ID.Cluster, Host: info.ID.Host, Evidence: "complete", Calls: map[string]*Call{},
		GPUs: map[string]*GPU{}, Launches: map[string]uint64{}, Copies: map[string]*Copy{}, Threads: []Thread{},
		id: info.ID, User: info.User, Pod: info.Pod, Unit: info.Unit, Cgroup: info.Cgroup, NSPID: info.NSPID,
		Classes: map[string]uint64{}, Holders: Holders{List: []Holder{}}, Pools: []Pool{},
		Kernels: map[string]*Kernel{}, Unseen: Unseen{Functions: []string{}}, TopKernels: []KernelRate{},
		Graphs: []GraphRate{}, CopyGroups: []CopyGroup{}, Torch: map[string]*Torch{}, Verdicts: []Verdict{},
		Job: info.Job, features: s.features,
	}
	if info.Rank > 0 {
		rank := info.Rank - 1
		p.Rank = &rank
	}
	if info.Late {
		p.Evidence = "late"
	}
	if s.features.paired {
		p.Gaps = []LaunchGaps{}
	}
	s.byID[info.ID] = p
	s.Processes = append(s.Processes, p)
	return p
}

// calls adds the calls. Records of exec and exit are not calls.
func (p *Process) calls(list []process.Call) {
	for i := range list {
		c := &list[i]
		if c.Op == schema.OpExit || c.Op == schema.OpExec {
			continue
		}
		p.Calls[c.Symbol] = &Call{OK: c.OK, Failed: c.Failed, Errors: c.Errors, Recorded: c.Recorded}
	}
}

// features are the kinds of events that this run watches, as far as reports depend on them.
type features struct {
	known  bool // false: the answer of a fleet does not tell, nor may a recording of one
	paired bool // launches and waits
}

// Watches tells which features are watched, and whether all others are not. Without it only what depends on none of
// them is known.
func (s *Snapshot) Watches(names []string, complete bool) {
	paired := slices.Contains(names, schema.KindLaunch.String()) && slices.Contains(names, schema.KindSync.String())
	s.features = features{complete || paired, paired}
}

// pairing says why no launch or copy of a process was paired with a wait. A fleet does not know which features its
// producers watch.
func (f features) pairing(waited, names string) string {
	if f.known {
		return "needs the features " + names
	}
	return fmt.Sprintf("unknown: the process never %s, or the features %s are off", waited, names)
}
