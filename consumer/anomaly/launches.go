package anomaly

import (
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/schema"
)

// partial marks launches of graphs whose kernels are not all known.
const partial = 1 << 62

// launches counts the kernels that each process launched, by launch shape and not by event.
func (d *Detector) launches(b *schema.Batch, procs []*proc) {
	anyPartial := d.weigh(b)
	c := &d.columns
	c.threads = b.Thread().Values(c.threads, b.Events)
	c.shapes = b.Shape().Values(c.shapes, b.Events)
	index := rule.IndexOf(b.First)
	if anyPartial || index != rule.IndexOf(b.Last) {
		c.times = b.Time().Values(c.times, b.Events)
		for i, shape := range c.shapes {
			s := &procs[c.threads[i]].State
			s.Launched(b.First)
			if to := s.At(rule.IndexOf(schema.KTime(c.times[i]))); to != nil {
				to.Launches += d.weights[shape] &^ partial
				to.Unknown = to.Unknown || d.weights[shape] >= partial
			}
		}
		return
	}
	d.counts = append(d.counts[:0], make([]uint64, len(procs))...)
	weights, counts := d.weights, d.counts
	for i, shape := range c.shapes {
		counts[c.threads[i]] += weights[shape]
	}
	for thread, n := range counts {
		if n == 0 {
			continue
		}
		s := &procs[thread].State
		s.Launched(b.First)
		if to := s.At(index); to != nil {
			to.Launches += n
		}
	}
}

// weigh sets how many kernels a launch of each shape runs, and reports whether it is unknown of one.
func (d *Detector) weigh(b *schema.Batch) (anyPartial bool) {
	d.graphs = append(d.graphs[:0], make([]uint64, len(b.Funcs))...)
	for i := range b.Graphs {
		d.graphs[b.Graphs[i].Func] = kernelsOf(&b.Graphs[i])
	}
	d.weights = d.weights[:0]
	for i := range b.Shapes {
		s, n := &b.Shapes[i], uint64(0)
		switch b.Calls[s.Call].Op {
		case schema.OpLaunch:
			n = 1
		case schema.OpGraphLaunch:
			if n = d.graphs[s.Func]; n == 0 { // the batch does not list it
				n = partial
			}
		}
		anyPartial = anyPartial || n >= partial
		d.weights = append(d.weights, n)
	}
	return anyPartial
}

// kernelsOf returns how many kernels a launch of a graph runs, or at least; never 0.
func kernelsOf(g *schema.Graph) (n uint64) {
	for _, node := range g.Nodes {
		n += uint64(node.Count)
	}
	n = min(max(n, 1), maxKernels)
	if g.Partial {
		n |= partial
	}
	return n
}

// maxKernels limits the kernels of one launch, so that sums do not overflow.
const maxKernels = 1 << 40
