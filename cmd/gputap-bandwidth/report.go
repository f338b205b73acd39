package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/bandwidth"
)

const shown = 20

// report prints the processes that copied the most bytes, one line per direction.
func report(w io.Writer, shards []*bandwidth.Meter) {
	var processes []bandwidth.Process
	for _, shard := range shards {
		processes = append(processes, shard.Report()...)
	}
	slices.SortStableFunc(processes, func(a, b bandwidth.Process) int { return cmp.Compare(total(&b), total(&a)) })
	t := app.NewTable("HOST", "PID", "COMMAND", "DIRECTION", "COPIES", "BYTES", "SYNC RATE", "ASYNC BYTES")
	for i := range processes[:min(shown, len(processes))] {
		p := &processes[i]
		for _, c := range p.Copies {
			t.Row(p.ID.Host, p.ID.PID, p.Comm, c.Word(), c.Calls, app.Amount(c.Bytes), rate(&c),
				app.Amount(c.AsyncBytes))
		}
	}
	t.Write(w)
	fmt.Fprintf(w, "%d processes\n\n", len(processes))
}

// rate returns the throughput of synchronous copies. The duration of an asynchronous copy is unknown.
func rate(c *bandwidth.DirectionUse) string {
	if c.BusyNS == 0 {
		return "-"
	}
	return app.Bytes(uint64(c.Throughput())) + "/s"
}

func total(p *bandwidth.Process) (n uint64) {
	for i := range p.Copies {
		n += p.Copies[i].Bytes
	}
	return n
}
