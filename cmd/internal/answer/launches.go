package answer

import "github.com/gputap/gputap/consumer/launch"

func (s *Snapshot) addLaunches(report []launch.Process) {
	for i := range report {
		q := &report[i]
		p := s.process(&q.Info)
		p.calls(q.Calls)
		p.GraphLaunches, p.GraphLaunchesPartial, p.HostFuncs = q.GraphLaunches, q.GraphLaunchesPartial, q.HostFuncs
		p.Recorded += q.Recorded
		for _, f := range q.Funcs {
			p.kernel(&f)
		}
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
