package launch

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
)

// Process is the launches of one process. LastMinute counts the launches of the last complete minute of event time;
// minutes are counted from the boot. HasMinute is false if the process began after that minute did.
type Process struct {
	process.Info
	Calls         []process.Call // launches have no return probe: every call counts as OK
	Launches      uint64         // of CUDA kernels, including those inside graphs
	LastMinute    uint64
	HasMinute     bool
	Life          time.Duration // from the start of the process, or its first event if it is late, to its last event
	Funcs         []Func        // most launched first
	GraphLaunches uint64

	GraphLaunchesPartial uint64  // the part of GraphLaunches whose graphs have unknown kernels
	Graphs               []Graph // most launched first; at most 64
	Recorded             uint64  // launches recorded into a graph; they did not run
	HostFuncs            uint64  // host functions submitted to CUDA streams
	Gaps                 []Gaps  // most first; empty without the kind sync
}

// Func is one kernel of a process. Name is demangled; it is "unknown" if the handle was obtained unseen. The kernels
// above the limit share one Func with the Name "other" and no Mangled.
type Func struct {
	Name       string
	Mangled    string
	Launches   uint64
	LastMinute uint64
	Shapes     []Shape // the first 8; launches of further shapes and by graphs count only in Launches

	FromGraphs uint64 // the part of Launches made by graphs
	Read       bool   // the producer read the name from the program's memory
}

// Shape is one launch configuration of a kernel.
type Shape struct {
	Grid        [3]uint32
	Block       [3]uint32
	SharedBytes uint32 // dynamic shared memory per block
	Launches    uint64
	LastMinute  uint64
}

// Graph is one executable graph of a process.
type Graph struct {
	Handle     uint64
	Launches   uint64
	LastMinute uint64
	Kernels    uint64 // that one launch runs
	Partial    bool   // it may run more
}

// Report returns the processes in order of first sight.
func (h *Histogram) Report() []Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.processes.All()
	report := make([]Process, 0, len(all))
	for _, e := range all {
		minute, known := h.complete(e.ID)
		if known = known && uint64(e.State.began) <= minute*60e9; !known {
			minute = noMinute
		}
		p := Process{
			Info: e.Info, Calls: e.Calls.Clone(), Funcs: e.State.report(minute), GraphLaunches: e.State.graphs.launches,
			GraphLaunchesPartial: e.State.partial, Graphs: e.State.reportGraphs(minute), Recorded: e.State.recorded,
			HostFuncs: e.State.hostFuncs, Gaps: e.State.gaps.report(), HasMinute: known,
			Life: time.Duration(e.State.last - min(e.State.began, e.State.last)),
		}
		for i := range p.Funcs {
			p.Launches += p.Funcs[i].Launches
			p.LastMinute += p.Funcs[i].LastMinute
		}
		report = append(report, p)
	}
	return report
}

// noMinute is a minute without launches.
const noMinute = 1 << 60

func (s *state) report(minute uint64) []Func {
	list := make([]Func, 0, len(s.kernels)+1)
	for _, k := range s.kernels {
		f := Func{
			Name: k.name.full, Mangled: k.name.mangled, Launches: k.launches, LastMinute: k.in(minute),
			FromGraphs: k.fromGraphs, Read: k.read,
		}
		for i := range k.shapes {
			s := &k.shapes[i]
			f.Shapes = append(f.Shapes, Shape{s.grid, s.block, s.sharedBytes, s.launches, s.in(minute)})
		}
		list = append(list, f)
	}
	if s.other.launches > 0 {
		list = append(list, Func{Name: other, Launches: s.other.launches, LastMinute: s.other.in(minute)})
	}
	slices.SortFunc(list, func(a, b Func) int {
		return cmp.Or(cmp.Compare(b.Launches, a.Launches), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Mangled, b.Mangled))
	})
	return list
}

func (s *state) reportGraphs(minute uint64) (list []Graph) {
	for handle, x := range s.executables {
		list = append(list, Graph{handle, x.launches, x.in(minute), x.kernels, x.partial})
	}
	slices.SortFunc(list, func(a, b Graph) int {
		return cmp.Or(cmp.Compare(b.Launches, a.Launches), cmp.Compare(a.Handle, b.Handle))
	})
	return list
}
