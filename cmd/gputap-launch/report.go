package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/launch"
)

const shown = 20

// report prints the processes with the most launches, each with its most launched CUDA kernel.
func report(w io.Writer, shards []*launch.Histogram) {
	var processes []launch.Process
	for _, shard := range shards {
		processes = append(processes, shard.Report()...)
	}
	slices.SortStableFunc(processes, func(a, b launch.Process) int { return cmp.Compare(total(&b), total(&a)) })
	t := app.NewTable("HOST", "PID", "COMMAND", "LAUNCHES", "GRAPHS", "KERNELS", "TOP KERNEL", "ITS LAUNCHES")
	for i := range processes[:min(shown, len(processes))] {
		p := &processes[i]
		var most launch.Func
		if len(p.Funcs) > 0 {
			most = p.Funcs[0]
		}
		t.Row(p.ID.Host, p.ID.PID, p.Comm, total(p), p.GraphLaunches, len(p.Funcs), most.Name, most.Launches)
	}
	t.Write(w)
	fmt.Fprintf(w, "%d processes\n\n", len(processes))
}

// total returns the CUDA kernel launches of a process, including those inside graphs.
func total(p *launch.Process) (n uint64) {
	for i := range p.Funcs {
		n += p.Funcs[i].Launches
	}
	return n
}
