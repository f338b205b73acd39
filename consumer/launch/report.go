package launch

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/consumer/process"
)

// Process is what one process launched.
type Process struct {
	process.Info
	Calls         []process.Call // launches have no return probe: every call counts as OK
	Funcs         []Func         // most launched first
	GraphLaunches uint64

	GraphLaunchesPartial uint64 // of them, graphs of which not all kernels are known
	Recorded             uint64 // launches that were recorded into a graph: they did not run
	HostFuncs            uint64 // functions of the host put into CUDA streams
}

// Func is one kernel of a process. Name is demangled, "unknown" for a handle that was obtained
// unseen. The kernels above the bound are together one Func "other" without Mangled.
type Func struct {
	Name     string
	Mangled  string
	Launches uint64
	Shapes   []Shape // the first 8; the launches of further ones, and those by graphs, are in Launches alone

	FromGraphs uint64 // of the launches, those by launches of graphs
	Read       bool   // the program never told the name: it was found in its memory
}

// Report lists the processes in order of first sight.
func (h *Histogram) Report() []Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.processes.All()
	report := make([]Process, 0, len(all))
	for _, e := range all {
		report = append(report, Process{
			Info:  e.Info,
			Calls: e.Calls.Clone(), Funcs: e.State.report(), GraphLaunches: e.State.graphs,
			GraphLaunchesPartial: e.State.partial, Recorded: e.State.recorded, HostFuncs: e.State.hostFuncs,
		})
	}
	return report
}

func (s *state) report() []Func {
	list := make([]Func, 0, len(s.kernels)+1)
	for _, k := range s.kernels {
		list = append(list, Func{
			Name: k.name.full, Mangled: k.name.mangled, Launches: k.launches, Shapes: slices.Clone(k.shapes),
			FromGraphs: k.fromGraphs, Read: k.read,
		})
	}
	if s.other > 0 {
		list = append(list, Func{Name: other, Launches: s.other})
	}
	slices.SortFunc(list, func(a, b Func) int {
		return cmp.Or(cmp.Compare(b.Launches, a.Launches), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Mangled, b.Mangled))
	})
	return list
}
