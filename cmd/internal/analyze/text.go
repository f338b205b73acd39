package analyze

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
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
	for i := range r.Processes[:min(maxProcesses, len(r.Processes))] {
		p := &r.Processes[i]
		for _, gpu := range p.order {
			f := p.GPUs[gpu]
			cells := []any{p.Host, p.PID, p.Comm, fmt.Sprintf("%.12s", gpu), app.Amount(f.amount()),
				len(f.live().List), f.when().Format("2006-01-02 15:04:05.000Z")}
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
				fmt.Fprintf(to, "\n%s/%d %s on %.12s\n", p.Host, p.PID, p.Comm, gpu)
				writeRows(to, list)
			}
		}
	}
	writeFindings(to, r.Findings, r.Missing)
}

// row is equal allocations.
type row struct {
	Allocation // the oldest
	count      uint64
}

// writeRows prints the rows of equal allocations with the most bytes.
func writeRows(to io.Writer, list []Allocation) {
	type key struct {
		bytes         uint64
		class, symbol string
		tid           uint32
	}
	at, rows := map[key]int{}, []row{}
	for i := range list {
		a := &list[i]
		k := key{a.Bytes, a.Class, a.Symbol, a.TID}
		if _, known := at[k]; !known {
			at[k] = len(rows)
			rows = append(rows, row{Allocation: *a})
		}
		rows[at[k]].count++
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.count*b.Bytes, a.count*a.Bytes) })
	for _, a := range rows[:min(maxRows, len(rows))] {
		fmt.Fprintf(to, "  %6d × %-12s %11s  %-8s thread %d %s, %s, oldest %s\n", a.count, app.Bytes(a.Bytes),
			app.Bytes(a.count*a.Bytes), a.Class, a.TID, a.Thread, a.Symbol, a.Time.Format("15:04:05.000Z"))
	}
	if more := len(rows) - maxRows; more > 0 {
		fmt.Fprintf(to, "  … and %d more rows; -o json shows all\n", more)
	}
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

var csvColumns = []string{"host", "pid", "comm", "gpu", "total_bytes", "time", "address", "bytes", "class", "tid",
	"thread", "symbol", "allocated"}

// writeCSV prints a line for each allocation.
func writeCSV[T figure](to io.Writer, r *Result[T]) error {
	out := csv.NewWriter(to)
	_ = out.Write(csvColumns) // out keeps its errors
	for i := range r.Processes {
		p := &r.Processes[i]
		for _, gpu := range p.order {
			f, when := p.GPUs[gpu], ""
			if at := f.when(); !at.IsZero() {
				when = app.Time{Time: at}.String()
			}
			for _, a := range f.live().List {
				_ = out.Write([]string{p.Host, strconv.Itoa(int(p.PID)), p.Comm, gpu,
					strconv.FormatUint(f.amount(), 10), when, a.Address, strconv.FormatUint(a.Bytes, 10), a.Class,
					strconv.Itoa(int(a.TID)), a.Thread, a.Symbol, a.Time.String()})
			}
		}
	}
	out.Flush()
	return out.Error()
}
