package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/launch"
)

// AddLaunches adds a process of the launch fold.
func (s *Snapshot) AddLaunches(q *launch.Process) {
	p := s.process(&q.Info)
	p.told.launches = true
	p.calls(q.Calls)
	p.GraphLaunches, p.GraphLaunchesPartial, p.HostFuncs = q.GraphLaunches, q.GraphLaunchesPartial, q.HostFuncs
	p.Recorded += q.Recorded
	for _, f := range q.Funcs {
		p.kernel(&f)
	}
	p.launchRates(q)
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
		k.NameSource = Unknown
	case f.Read:
		k.NameSource = "read"
	}
}

// Rate is how often something was launched. LastMinute is null without a complete minute in the life of the process.
type Rate struct {
	Launches   uint64   `json:"launches"`
	PerSecond  float64  `json:"per_second"` // from the start of the process to its last launch
	LastMinute *float64 `json:"per_second_last_minute"`
	Share      float64  `json:"share"` // of the launches of the process
}

// KernelRate is the launches of one kernel, with its shapes.
type KernelRate struct {
	Kernel string `json:"kernel"`
	Rate
	Shapes []ShapeRate `json:"shapes"`
}

// ShapeRate is the launches of one launch shape.
type ShapeRate struct {
	Grid        [3]uint32 `json:"grid"`
	Block       [3]uint32 `json:"block"`
	SharedBytes uint32    `json:"shared_bytes"`
	Rate
}

// GraphRate is the launches of one executable graph. Share is of the graph launches.
type GraphRate struct {
	Handle  string `json:"handle"`
	Kernels uint64 `json:"kernels_per_launch"`
	Partial bool   `json:"partial"`
	Rate
}

// LaunchGaps is the distribution of times between the end of a wait and the next launch of the thread.
type LaunchGaps struct {
	CUDAStream string  `json:"cuda_stream"` // of the launch: handle, "default", or "other"
	Count      uint64  `json:"count"`
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50_seconds"`
	P90        float64 `json:"p90_seconds"`
	P99        float64 `json:"p99_seconds"`
	Max        float64 `json:"max_seconds"`
}

// launchRates adds the rates of one process. Kernels with the same name, for example in two modules, are separate.
func (p *Process) launchRates(q *launch.Process) {
	rate := func(n, minute, of uint64) Rate {
		r := Rate{Launches: n, Share: float64(n) / float64(max(of, 1))}
		if q.Life > 0 {
			r.PerSecond = float64(n) / q.Life.Seconds()
		}
		if q.HasMinute {
			r.LastMinute = new(float64(minute) / time.Minute.Seconds())
		}
		return r
	}
	for i := range q.Funcs {
		k := &q.Funcs[i]
		list := []ShapeRate{}
		for _, s := range k.Shapes {
			list = append(list, ShapeRate{s.Grid, s.Block, s.SharedBytes, rate(s.Launches, s.LastMinute, q.Launches)})
		}
		slices.SortStableFunc(list, func(a, b ShapeRate) int { return cmp.Compare(b.Launches, a.Launches) })
		p.TopKernels = append(p.TopKernels, KernelRate{k.Name, rate(k.Launches, k.LastMinute, q.Launches), list})
	}
	for _, g := range q.Graphs {
		p.Graphs = append(p.Graphs,
			GraphRate{hex(g.Handle), g.Kernels, g.Partial, rate(g.Launches, g.LastMinute, q.GraphLaunches)})
	}
	for i := range q.Gaps {
		g := &q.Gaps[i]
		name := hex(g.CUDAStream)
		switch {
		case g.Others:
			name = "other"
		case g.CUDAStream <= 2: // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
			name = "default"
		}
		longest := float64(g.Most) / 1e9
		p.Gaps = append(p.Gaps, LaunchGaps{
			name, g.Count, float64(g.Sum) / 1e9, min(g.P50, longest), min(g.P90, longest),
			min(g.P99, longest), longest,
		})
	}
}

const (
	maxShapes = 3 // shown per kernel
	maxGaps   = 3
)

// writeTopKernels prints the most launched kernels with their rates and most launched shapes.
func writeTopKernels(out io.Writer, p *Process) {
	for _, k := range p.TopKernels[:min(maxKernels, len(p.TopKernels))] {
		fmt.Fprintf(out, "    %10d  %5.1f %%  %9s  %s\n", k.Launches, 100*k.Share, rateText(k.Rate),
			app.Shorten(k.Kernel, 80))
		for _, s := range k.Shapes[:min(maxShapes, len(k.Shapes))] {
			fmt.Fprintf(out, "    %10d  %5.1f %%  %9s    grid %s, block %s", s.Launches, 100*s.Share, rateText(s.Rate),
				dims(s.Grid), dims(s.Block))
			if s.SharedBytes > 0 {
				fmt.Fprintf(out, ", shared %s", app.Bytes(uint64(s.SharedBytes)))
			}
			fmt.Fprintln(out)
		}
	}
	if more := len(p.TopKernels) - maxKernels; more > 0 {
		fmt.Fprintf(out, "    … and %d more kernels\n", more)
	}
}

func dims(d [3]uint32) string { return fmt.Sprintf("%d×%d×%d", d[0], d[1], d[2]) }

// rateText returns the rate of the last minute, else the one from the start of the process to its last launch.
func rateText(r Rate) string {
	rate := r.PerSecond
	if r.LastMinute != nil {
		rate = *r.LastMinute
	}
	return app.Rate(rate) + "/s"
}

// writeGaps prints the gaps between waits and launches.
func writeGaps(out io.Writer, p *Process) {
	if len(p.TopKernels) > 0 && p.Gaps == nil && p.Waits.Calls == 0 && !p.lacks.copies {
		fmt.Fprintln(out, "  from a wait to the next launch: "+p.features.pairing("waited", "launch and sync"))
	}
	for _, g := range p.Gaps[:min(maxGaps, len(p.Gaps))] {
		fmt.Fprintf(out, "  from a wait to the next launch in CUDA stream %s: %s, "+
			"half up to %s, 99 %% up to %s, max %s\n",
			g.CUDAStream, app.Plural(g.Count, "gap", "gaps"), short(g.P50), short(g.P99), short(g.Max))
	}
}

func short(seconds float64) string {
	d := time.Duration(seconds * 1e9)
	return d.Round(max(d/100, 1)).String()
}
