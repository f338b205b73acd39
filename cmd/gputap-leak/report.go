package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer/leak"
)

const shown = 20

// report prints the processes with the most live memory, and the totals of all processes.
func report(w io.Writer, shards []*fold.Memory) {
	var r leak.Report
	for _, memory := range shards {
		one := memory.Tracker.Report()
		r.Processes = append(r.Processes, one.Processes...)
		r.Totals.LiveBytes += one.Totals.LiveBytes
		r.Totals.LiveAllocations += one.Totals.LiveAllocations
		r.Totals.UnfreedBytes += one.Totals.UnfreedBytes
	}
	slices.SortStableFunc(r.Processes, func(a, b leak.Process) int {
		return cmp.Or(cmp.Compare(b.LiveBytes, a.LiveBytes), cmp.Compare(b.UnfreedBytes, a.UnfreedBytes))
	})
	t := app.NewTable("HOST", "PID", "COMMAND", "STATE", "LIVE", "ALLOCATIONS", "PEAK", "UNFREED AT EXIT", "EVIDENCE")
	for i := range r.Processes[:min(shown, len(r.Processes))] {
		p := &r.Processes[i]
		state := "running"
		if p.Ended {
			state = "ended"
		}
		t.Row(p.ID.Host, p.ID.PID, p.Comm, state, app.Amount(p.LiveBytes), p.LiveAllocations, app.Amount(p.PeakBytes),
			app.Amount(p.UnfreedBytes), p.Evidence)
	}
	t.Write(w)
	fmt.Fprintf(w, "%s, %s live in %s, %s unfreed at exit\n\n",
		app.Plural(uint64(len(r.Processes)), "process", "processes"), app.Bytes(r.Totals.LiveBytes),
		app.Plural(r.Totals.LiveAllocations, "allocation", "allocations"), app.Bytes(r.Totals.UnfreedBytes))
}
