package launch

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Process is what one process launched.
type Process struct {
	ID            schema.ProcessID
	Start         time.Time
	UID           uint32
	Comm          string
	Exe           string
	Container     string
	Late          bool           // launched before gputap was attached: counts are too low
	Calls         []process.Call // launches have no return probe: every call counts as OK
	Funcs         []Func         // most launched first
	GraphLaunches uint64
}

// Func is one kernel of a process. Name is demangled, "unknown" for a handle that was obtained
// unseen. The kernels above the bound are together one Func "other" without Mangled.
type Func struct {
	Name     string
	Mangled  string
	Launches uint64
	Shapes   []Shape // the first 8; the launches of further ones are in Launches alone
}

// Report lists the processes in order of first sight.
func (h *Histogram) Report() []Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.processes.All()
	report := make([]Process, 0, len(all))
	for _, e := range all {
		report = append(report, Process{
			ID: e.ID, Start: e.Start, UID: e.UID, Comm: e.Comm, Exe: e.Exe, Container: e.Container, Late: e.Late,
			Calls: e.Calls.Clone(), Funcs: e.State.report(), GraphLaunches: e.State.graphs,
		})
	}
	return report
}

func (s *state) report() []Func {
	list := make([]Func, 0, len(s.kernels)+1)
	for _, k := range s.kernels {
		list = append(list, Func{k.name.full, k.name.mangled, k.launches, slices.Clone(k.shapes)})
	}
	if s.other > 0 {
		list = append(list, Func{Name: other, Launches: s.other})
	}
	slices.SortFunc(list, func(a, b Func) int {
		return cmp.Or(cmp.Compare(b.Launches, a.Launches), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Mangled, b.Mangled))
	})
	return list
}
