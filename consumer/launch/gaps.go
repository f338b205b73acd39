package launch

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// gaps are the times between the end of a wait and the next launch of the thread, by CUDA stream of the launch.
type gaps struct {
	streams map[uint64]*process.Powers
	others  process.Powers // of CUDA streams above the limit
}

const maxGapStreams = 16 // per process

// Gaps is the distribution for one CUDA stream, in a form that can travel. Sum and Most are ns. Quantiles are seconds:
// the ends of their buckets.
type Gaps struct {
	CUDAStream    uint64
	Others        bool // of all CUDA streams above the limit
	Count         uint64
	Sum, Most     uint64
	P50, P90, P99 float64
}

func gapsOf(cudaStream uint64, others bool, p *process.Powers) Gaps {
	return Gaps{cudaStream, others, p.Count, p.Sum, p.Most, p.Quantile(.5), p.Quantile(.9), p.Quantile(.99)}
}

func (g *gaps) at(cudaStream uint64) *process.Powers {
	p := g.streams[cudaStream]
	switch {
	case p != nil:
		return p
	case len(g.streams) >= maxGapStreams:
		return &g.others
	case g.streams == nil:
		g.streams = map[uint64]*process.Powers{}
	}
	p = &process.Powers{}
	g.streams[cudaStream] = p
	return p
}

// report returns the CUDA streams with the most gaps first, and then the others.
func (g *gaps) report() (list []Gaps) {
	for q, p := range g.streams {
		list = append(list, gapsOf(q, false, p))
	}
	slices.SortFunc(list, func(a, b Gaps) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.CUDAStream, b.CUDAStream))
	})
	if g.others.Count > 0 {
		list = append(list, gapsOf(0, true, &g.others))
	}
	return list
}

func (g *gaps) code(c *snapshot.Codec) {
	snapshot.Map(c, &g.streams, 6, cmp.Compare, func(q *uint64, p **process.Powers) {
		snapshot.Uint(c, q)
		if c.Reading() {
			*p = &process.Powers{}
		}
		(*p).Code(c)
	})
	g.others.Code(c)
	if len(g.streams) > maxGapStreams {
		c.Fail("more than %d CUDA streams", maxGapStreams)
	}
}

// applyGaps counts the gaps of a sync batch.
func (h *Histogram) applyGaps(b *schema.Batch) {
	if !slices.ContainsFunc(b.Calls, func(c schema.CallRef) bool { return c.Op == schema.OpResume }) {
		return
	}
	entries := h.processes.Threads(b)
	h.calls = b.Call().Values(h.calls, b.Events)
	for i, call := range h.calls {
		if b.Calls[call].Op != schema.OpResume {
			continue
		}
		e := b.Sync(i)
		live(b, entries[e.Thread])
		entries[e.Thread].State.gaps.at(b.CUDAStreams[e.CUDAStream]).
			Observe(process.SecondsPower(e.Duration), e.Duration)
	}
}
