package analyze

import (
	"cmp"
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/gputap/gputap/cmd/internal/answer"
)

// launchRows returns the columns of launches, and a row for each kernel of a process, those with the most launches
// first.
func launchRows(list []Launches) [][]string {
	rows := [][]string{{"host", "pid", "comm", "kernel", "launches"}}
	for i := range list {
		l := &list[i]
		kernels := slices.SortedFunc(maps.Keys(l.Launches), func(a, b string) int {
			return cmp.Or(cmp.Compare(l.Launches[b], l.Launches[a]), cmp.Compare(a, b))
		})
		for _, kernel := range kernels {
			rows = append(rows, []string{l.Host, decimal(uint64(l.PID)), l.Comm, kernel, decimal(l.Launches[kernel])})
		}
	}
	return rows
}

// copyRows returns the columns of bandwidth, and a row for each group of copies of a process.
func copyRows(list []Copies) [][]string {
	rows := [][]string{{"host", "pid", "comm", "gpu", "direction", "size", "host_memory", "calls", "bytes",
		"bytes_per_second", "at_least"}}
	for i := range list {
		c := &list[i]
		for _, g := range c.groups() {
			rate, least := "", ""
			if t := g.Throughput; t != nil {
				rate, least = figureText(&t.BytesPerSecond), strconv.FormatBool(t.AtLeast)
			}
			rows = append(rows, []string{c.Host, decimal(uint64(c.PID)), c.Comm, g.GPU, g.Direction,
				g.Size, g.HostMemory,
				decimal(g.Calls), decimal(g.Bytes), rate, least})
		}
	}
	return rows
}

// groups returns the groups of copies, and the sets, of which only calls and bytes are known.
func (c *Copies) groups() []answer.CopyGroup {
	if set := c.Copies["set"]; set != nil && set.Calls > 0 {
		return append(slices.Clip(c.Groups), answer.CopyGroup{Direction: "set", Calls: set.Calls, Bytes: set.Bytes})
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
