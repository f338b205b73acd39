package analyze

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
)

const (
	maxProcesses = 20 // shown as text
	maxRows      = 10 // of one GPU

	titlePeak = "PEAK"
)

// figure is what text and CSV show of a process on one GPU.
type figure interface {
	amount() uint64
	when() time.Time // zero: it has no time
	live() *Live
}

func (p Peak) amount() uint64  { return p.Bytes }
func (p Peak) when() time.Time { return p.Time.Time }
func (p Peak) live() *Live     { return &p.Live }
func (l Leak) amount() uint64  { return l.Bytes }
func (l Leak) when() time.Time { return time.Time{} }
func (l Leak) live() *Live     { return &l.Live }

// writeText prints the processes, and the largest groups of equal allocations of each GPU.
func writeText[T figure](to io.Writer, r *Result[T], title string) {
	columns := []string{"HOST", "PID", "COMMAND", "GPU", title, "ALLOCATIONS"}
	if title == titlePeak {
		columns = append(columns, "TIME")
	}
	table := app.NewTable(columns...)
	clusters := severalClusters(r.Processes, func(p *Process[T]) *Who { return &p.Who })
	for i := range r.Processes[:min(maxProcesses, len(r.Processes))] {
		p := &r.Processes[i]
		for _, gpu := range p.order {
			f := p.GPUs[gpu]
			cells := []any{p.place(clusters), p.PID, cmp.Or(p.Comm, "-"), fmt.Sprintf("%.12s", gpu),
				app.Amount(f.amount()), len(f.live().List), f.when().Format("2006-01-02 15:04:05.000Z")}
			table.Row(cells[:len(columns)]...)
		}
	}
	table.Write(to)
	if more := len(r.Processes) - maxProcesses; more > 0 {
		fmt.Fprintf(to, "… and %d more processes; -o json shows all\n", more)
	}
	for i := range r.Processes[:min(maxProcesses, len(r.Processes))] {
		p := &r.Processes[i]
		for _, gpu := range p.order {
			if list := p.GPUs[gpu].live().List; len(list) > 0 {
				fmt.Fprintf(to, "\n%s\n", app.Printable(heading(&p.Who, clusters, gpu)))
				writeRows(to, list)
			}
		}
	}
	writeFindings(to, r.Findings, r.Missing)
}

func writeFindings(to io.Writer, f Findings, missing []string) {
	for _, one := range []struct {
		n    uint64
		text string
	}{
		{f.UnmatchedFrees, "frees of memory whose allocation was not seen"},
		{f.Reallocations, "allocations over live memory, whose free was not seen"},
		{f.LateFrees, "frees of memory that such an allocation had ended"},
		{f.UnknownContexts, "calls with an unknown CUDA context"},
		{f.Failed, "calls that failed"},
		{f.SizeMismatches, "frees of another size than the allocation"},
		{f.ImpossibleSizes, "rows of the export with an impossible size"},
		{f.UnknownKinds, "memory events of an unknown kind of memory"},
	} {
		if one.n > 0 {
			fmt.Fprintf(to, "\n%s: %d", one.text, one.n)
		}
	}
	for _, text := range missing {
		fmt.Fprintf(to, "\nincomplete: %s", text)
	}
	if len(missing) > 0 || f != (Findings{}) {
		fmt.Fprintln(to)
	}
}
