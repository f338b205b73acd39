package analyze

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/analysis"
)

// writeUsageText prints the first, last and highest amount of each curve, and how many points it has.
func (m *memory) writeUsageText(to io.Writer, r *Range, by string, step time.Duration) error {
	columns := []string{"HOST", "PID", "COMMAND", "GPU", "FIRST", "LAST", titlePeak, "POINTS"}
	if by != byGPU {
		columns = append(columns, "SERIES")
	}
	table := app.NewTable(columns...)
	list := m.split(r, by)
	clusters := severalClusters(list, func(p **analysis.Process) *Who { return new(whoOf(*p)) })
	for _, p := range list[:min(maxProcesses, len(list))] {
		host, gpus := new(whoOf(p)).place(clusters), gpuNames(p)
		for _, c := range curves(p, by) {
			var first, last, peak uint64
			points := 0
			err := c.points(p, step, func(_ time.Time, bytes uint64) {
				if points++; points == 1 {
					first = bytes
				}
				last, peak = bytes, max(peak, bytes)
			})
			if err != nil {
				return err
			}
			cells := []any{host, p.ID.PID, cmp.Or(p.Comm, "-"), fmt.Sprintf("%.12s", gpus[c.gpu]), app.Amount(first),
				app.Amount(last), app.Amount(peak), points, app.Shorten(c.name, 60)}
			table.Row(cells[:len(columns)]...)
		}
	}
	table.Write(to)
	if more := len(list) - maxProcesses; more > 0 {
		fmt.Fprintf(to, "… and %d more processes; -o csv shows all\n", more)
	}
	writeFindings(to, m.Findings, m.Missing)
	return nil
}
