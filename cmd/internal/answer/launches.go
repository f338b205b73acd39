package answer

import (
	"iter"

	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
)

func (s *Snapshot) addLaunches(q *launch.Process) {
	p := s.process(&q.Info)
	p.calls(q.Calls)
	p.GraphLaunches, p.GraphLaunchesPartial, p.HostFuncs = q.GraphLaunches, q.GraphLaunchesPartial, q.HostFuncs
	p.Recorded += q.Recorded
	for _, f := range q.Funcs {
		p.kernel(&f)
	}
}

// kernel adds the launches of one function. Functions with the same name, for example in two modules, are summed.
func (p *Process) kernel(f *launch.Func) {
	p.Launches[f.Name] += f.Launches
	k := p.Kernels[f.Name]
	if k == nil {
		k = &Kernel{NameSource: "told"}
		p.Kernels[f.Name] = k
	}
	k.Launches += f.Launches
	k.FromGraphs += f.FromGraphs
	switch {
	case f.Mangled == "":
		k.NameSource = unknown
	case f.Read:
		k.NameSource = "read"
	}
}

func launchInfo(p *launch.Process) *process.Info { return &p.Info }

// launches counts the launches of all kernels, those of graphs included.
func launches(p *launch.Process) (n uint64) {
	for i := range p.Funcs {
		n += p.Funcs[i].Launches
	}
	return n
}

// launchRows are the processes with the most launches first.
func launchRows(h *launch.Histogram, q *query.Question) (iter.Seq[any], int) {
	return largest(selected(h.Report(), q, launchInfo), q.Limit, launches)
}

// kernelRow is one CUDA kernel of one process.
type kernelRow struct {
	process.Info
	Func launch.Func
}

// kernelRows are the most launched kernels first.
func kernelRows(h *launch.Histogram, q *query.Question) (iter.Seq[any], int) {
	var rows []kernelRow
	for _, p := range selected(h.Report(), q, launchInfo) {
		for _, f := range p.Funcs {
			f.Shapes = nil
			rows = append(rows, kernelRow{p.Info, f})
		}
	}
	return largest(rows, q.Limit, func(k *kernelRow) uint64 { return k.Func.Launches })
}
