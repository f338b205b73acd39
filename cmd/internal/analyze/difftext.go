package analyze

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gputap/gputap/cmd/internal/app"
)

const maxDiffRows = 20

// writeDiff prints the largest changes.
func writeDiff(to io.Writer, d *Diff) {
	list := d.shown()
	switch {
	case len(d.Processes) == 0:
		fmt.Fprintln(to, "nothing to compare: no process in A or B")
	case len(list) == 0 && !d.Complete:
		fmt.Fprintln(to, "no differences in the data, which are incomplete")
	case len(list) == 0:
		fmt.Fprintln(to, "no differences")
	default:
		table := app.NewTable("COMMAND", "RANK", "WHAT", "MEASURE", "A", "B", "DIFFERENCE", "FACTOR", "NAME")
		for _, r := range list[:min(maxDiffRows, len(list))] {
			table.Row(r.comm, r.rank, r.What, r.measure(), right(r.format(*r.A)), right(r.format(*r.B)),
				right(r.difference()), right(r.factor()), app.Shorten(r.Name, 80))
		}
		table.Write(to)
	}
	if more := len(list) - maxDiffRows; more > 0 {
		fmt.Fprintf(to, "… and %d more differences; -o json shows all\n", more)
	}
	for _, run := range []string{"a", "b"} {
		if f := d.Findings[run]; f != (Findings{}) {
			fmt.Fprintf(to, "\nrecording %s:", strings.ToUpper(run))
			writeFindings(to, f, nil)
		}
	}
	for _, text := range d.Missing {
		fmt.Fprintf(to, "\nincomplete: %s", text)
	}
	if len(d.Missing) > 0 {
		fmt.Fprintln(to)
	}
}

// right is a text that a table aligns right.
type right string

// measure returns the words for a measure.
func (g *GroupDiff) measure() string {
	switch g.Measure {
	case measureGrowth:
		return "growth"
	case measureThroughput:
		return "throughput"
	}
	return strings.ReplaceAll(g.Measure, "_", " ")
}

// format returns a value with its unit.
func (g *GroupDiff) format(v float64) string {
	sign := ""
	if v < 0 {
		sign = "-"
	}
	switch g.Measure {
	case measureThroughput:
		return app.Rate(v/1e9) + " GB/s"
	case measureGrowth:
		return sign + app.Bytes(uint64(math.Abs(v))) + "/h"
	case measureAllocations, measureLaunches, measureCalls, measureCopyCalls:
		return fmt.Sprintf("%.0f", v)
	}
	return sign + app.Bytes(uint64(math.Abs(v)))
}

func (g *GroupDiff) difference() string {
	if *g.Change > 0 {
		return "+" + g.format(*g.Change)
	}
	return g.format(*g.Change)
}

// factor returns by how much B is larger.
func (g *GroupDiff) factor() string {
	if *g.A <= 0 || *g.B < 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g", *g.B / *g.A)
}
