package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/analysis"
)

const byProcess = "process"

// areas are the words of plot's --by. Each names the area or line that shows a group of a process.
var areas = map[string]func(n *names, p *analysis.Process, g *analysis.Group) string{
	byProcess: func(n *names, p *analysis.Process, _ *analysis.Group) string { return n.process(p) },
	"class":   func(_ *names, _ *analysis.Process, g *analysis.Group) string { return g.Class.String() },
	"job":     func(_ *names, p *analysis.Process, _ *analysis.Group) string { return cmp.Or(p.Job, "no job") },
	"host":    func(n *names, p *analysis.Process, _ *analysis.Group) string { return n.host(p) },
	byGPU:     func(n *names, p *analysis.Process, g *analysis.Group) string { return n.gpu(p, &p.GPUs[g.GPU]) },
	byTorch:   func(_ *names, _ *analysis.Process, g *analysis.Group) string { return torchAreas[g.Name] },
}

var torchAreas = map[string]string{analysis.Tensors: "PyTorch tensors", analysis.Cached: "PyTorch cache"}

// names names the processes of a chart, with their hosts and clusters if the chart has several.
type names struct{ hosts, clusters bool }

func newNames(list []*analysis.Process) *names {
	n := &names{}
	for _, p := range list {
		n.hosts = n.hosts || p.ID.Host != list[0].ID.Host
		n.clusters = n.clusters || p.ID.Cluster != list[0].ID.Cluster
	}
	return n
}

// process returns "python3 (42)", "gpu-7/42 python3" or "prod/gpu-7/42 python3".
func (n *names) process(p *analysis.Process) string {
	if n.hosts || n.clusters {
		return fmt.Sprintf("%s/%d %s", n.host(p), p.ID.PID, cmp.Or(p.Comm, "-"))
	}
	return fmt.Sprintf("%s (%d)", cmp.Or(p.Comm, "-"), p.ID.PID)
}

// gpu returns the begin of a UUID. A GPU without one has a number, which is that of its host.
func (n *names) gpu(p *analysis.Process, g *analysis.GPU) string {
	switch {
	case g.UUID != "":
		return app.Shorten(g.UUID, 12)
	case n.hosts || n.clusters:
		return n.host(p) + " GPU " + nameOf(g)
	}
	return "GPU " + nameOf(g)
}

func (n *names) host(p *analysis.Process) string {
	if n.clusters {
		return p.ID.Cluster + "/" + p.ID.Host
	}
	return p.ID.Host
}

// of lists the areas that a process is part of.
func (n *names) of(p *analysis.Process, by string) (list []string) {
	for i := range p.Groups {
		list = append(list, areas[by](n, p, &p.Groups[i]))
	}
	slices.Sort(list)
	return slices.Compact(list)
}
