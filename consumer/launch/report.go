package launch

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/consumer/process"
)

// Process is the launches of one process.
type Process struct {
	process.Info
	Calls         []process.Call // launches have no return probe: every call counts as OK
	Funcs         []Func         // most launched first
	GraphLaunches uint64

	GraphLaunchesPartial uint64 // the part of GraphLaunches whose graphs have unknown kernels
	Recorded             uint64 // launches recorded into a graph; they did not run
	HostFuncs            uint64 // host functions submitted to CUDA streams
}

// Func is one kernel of a process. Name is demangled; it is "unknown" if the handle was obtained unseen. The kernels
// above the limit share one Func with the Name "other" and no Mangled.
type Func struct {
	Name     string
	Mangled  string
	Launches uint64
	Shapes   []Shape // the first 8; launches of further shapes and by graphs count only in Launches

	FromGraphs uint64 // the part of Launches made by graphs
	Read       bool   // the producer read the name from the program's memory
}

// Report returns the processes in order of first sight.
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
		return cmp.Or(cmp.Compare(b.Launches, a.Launches), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Mangled, b.Mangled))
	})
	return list
}
