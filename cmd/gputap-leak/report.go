package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/trend"
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
		t.Row(p.ID.Host, p.ID.PID, p.Comm, state(p), app.Amount(p.LiveBytes), p.LiveAllocations,
			app.Amount(p.PeakBytes),
			app.Amount(p.UnfreedBytes), p.Evidence)
	}
	t.Write(w)
	fmt.Fprintf(w, "%s, %s live in %s, %s unfreed at exit\n\n",
		app.Plural(uint64(len(r.Processes)), "process", "processes"), app.Bytes(r.Totals.LiveBytes),
		app.Plural(r.Totals.LiveAllocations, "allocation", "allocations"), app.Bytes(r.Totals.UnfreedBytes))
}

// state is growing or suspect if the memory on some GPU is.
func state(p *leak.Process) string {
	gravest := trend.Steady
	for i := range p.Verdicts {
		if s := p.Verdicts[i].State; s.Grows() {
			gravest = max(gravest, s)
		}
	}
	switch {
	case p.Ended:
		return "ended"
	case gravest.Grows():
		return gravest.String()
	}
	return "running"
}
