package analyze

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
)

var csvColumns = []string{"host", "pid", "comm", "gpu", "total_bytes", "time", "address", "bytes", "class", "tid",
	"thread", "symbol", "allocated", "name", "stack", "cluster", "start"}

// writeCSV prints a line for each allocation.
func writeCSV[T figure](to io.Writer, r *Result[T]) error {
	out := csv.NewWriter(to)
	_ = out.Write(csvColumns) // out keeps its errors
	for i := range r.Processes {
		p := &r.Processes[i]
		for _, gpu := range p.order {
			f := p.GPUs[gpu]
			for _, a := range f.live().List {
				_ = out.Write([]string{p.Host, decimal(uint64(p.PID)), p.Comm, gpu, decimal(f.amount()),
					timeText(app.Time{Time: f.when()}), a.Address, decimal(a.Bytes), a.Class, decimal(uint64(a.TID)),
					a.Thread, a.Symbol, a.Time.String(), a.Name, folded(a.Stack), p.Cluster, timeText(p.Start)})
			}
		}
	}
	out.Flush()
	return out.Error()
}

// timeText returns "" for an unknown time.
func timeText(t app.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.String()
}

// folded joins the frames of a stack as flame graph tools read them: outermost first, with ";" between frames. A ";"
// within a frame becomes ":".
func folded(stack []string) string {
	frames := make([]string, 0, len(stack))
	for _, frame := range slices.Backward(stack) {
		frames = append(frames, strings.ReplaceAll(frame, ";", ":"))
	}
	return strings.Join(frames, ";")
}

// launchRows returns the columns of launches. A process has a row for each kernel, those with the most launches first,
// which the rows of its launch shapes follow, and then a row for each graph.
func launchRows(list []Launches) [][]string {
	rows := [][]string{{"host", "pid", "comm", "what", "name", "grid", "block", "block_threads", "shared_bytes",
		"launches", "per_second", "per_second_last_minute", "share", "kernels_per_launch", "partial", "cluster",
		"start"}}
	noShape, noGraph := make([]string, 4), make([]string, 2)
	for i := range list {
		l := &list[i]
		add := func(what, name string, shape []string, r *report.Rate, graph []string) {
			rows = append(rows, slices.Concat([]string{l.Host, decimal(uint64(l.PID)), l.Comm, what, name}, shape,
				[]string{decimal(r.Launches), figureText(&r.PerSecond), figureText(r.LastMinute), figureText(&r.Share)},
				graph, []string{l.Cluster, timeText(l.Start)}))
		}
		for _, k := range l.TopKernels {
			add("kernel", k.Kernel, noShape, &k.Rate, noGraph)
			for _, s := range k.Shapes {
				threads := uint64(s.Block[0]) * uint64(s.Block[1]) * uint64(s.Block[2])
				add("shape", k.Kernel, []string{dimensions(s.Grid), dimensions(s.Block), decimal(threads),
					decimal(uint64(s.SharedBytes))}, &s.Rate, noGraph)
			}
		}
		for _, g := range l.Graphs {
			add("graph", g.Handle, noShape, &g.Rate, []string{decimal(g.Kernels), strconv.FormatBool(g.Partial)})
		}
	}
	return rows
}

// dimensions returns the sizes of a grid or block.
func dimensions(of [3]uint32) string { return fmt.Sprintf("%d×%d×%d", of[0], of[1], of[2]) }

// copyRows returns the columns of bandwidth, and a row for each group of copies of a process.
func copyRows(list []Copies) [][]string {
	rows := [][]string{{"host", "pid", "comm", "gpu", "direction", "size", "host_memory", "calls", "bytes",
		"bytes_per_second", "at_least", "cluster", "start"}}
	for i := range list {
		c := &list[i]
		for _, g := range c.groups() {
			rate, least := "", ""
			if t := g.Throughput; t != nil {
				rate, least = figureText(&t.BytesPerSecond), strconv.FormatBool(t.AtLeast)
			}
			rows = append(rows, []string{c.Host, decimal(uint64(c.PID)), c.Comm, g.GPU, g.Direction,
				g.Size, g.HostMemory, decimal(g.Calls), decimal(g.Bytes), rate, least, c.Cluster, timeText(c.Start)})
		}
	}
	return rows
}

// groups returns the groups of copies, and the sets, which have calls and bytes alone.
func (c *Copies) groups() []report.CopyGroup {
	if set := c.Copies["set"]; set != nil && set.Calls > 0 {
		return append(slices.Clip(c.Groups), report.CopyGroup{Direction: "set", Calls: set.Calls, Bytes: set.Bytes})
	}
	return c.Groups
}

// diffRows returns the columns of diff, and every figure of both runs.
func diffRows(d *Diff) [][]string {
	rows := [][]string{{"comm", "rank", "what", "measure", "name", "a", "b", "change"}}
	for i := range d.Processes {
		p, rank := &d.Processes[i], ""
		if p.Rank != nil {
			rank = rankText(p.Rank)
		}
		for _, g := range slices.Concat(p.figures, p.Groups) {
			rows = append(rows, []string{p.Comm, rank, g.What, g.Measure, g.Name, figureText(g.A), figureText(g.B),
				figureText(g.Change)})
		}
	}
	return rows
}

func writeTable(to io.Writer, rows [][]string) error { return csv.NewWriter(to).WriteAll(rows) }

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// figureText returns a number without an exponent; "": unknown.
func figureText(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}
