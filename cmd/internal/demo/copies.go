package demo

import (
	"fmt"
	"strings"

	"github.com/gputap/gputap/cmd/internal/pipeline"
)

// throughput compares the bytes with the stub's, and the rates with bounds. Each copy as gputap times it contains the
// time that the stub measured inside the call, and is contained in the time that the workload measured around it.
func throughput(s *stage, now *pipeline.Snapshot) []Check {
	if len(s.images) != 1 {
		return []Check{{"the stub's totals", 1, len(s.images)}}
	}
	calls, around := s.images[0].Calls, timesAround(s.printed.String())
	var list checks
	for _, d := range []struct{ direction, symbol, async string }{
		{"HtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2"}, {"DtoH", "cuMemcpyDtoH_v2", ""},
		{"DtoD", "cuMemcpyDtoD_v2", ""},
	} {
		got, want := now.Processes[0].Copies[d.direction], calls[d.symbol]
		if got == nil {
			got = &pipeline.Copy{}
		}
		list.add("exit: "+d.direction+" bytes", want.Bytes+calls[d.async].Bytes, got.Bytes)
		list.add("exit: "+d.direction+" bytes/s",
			bounds{perSecond(want.Bytes, around[d.symbol]), perSecond(want.Bytes, want.BusyNS)},
			perSecond(got.Bytes-got.AsyncBytes, uint64(got.BusySeconds*1e9+0.5)))
	}
	return list
}

func perSecond(bytes, ns uint64) float64 {
	if ns == 0 {
		return 0 // JSON has no infinity
	}
	return float64(bytes) / (float64(ns) / 1e9)
}

// timesAround reads the workload's lines "around SYMBOL NS": nanoseconds around all calls of a symbol.
func timesAround(printed string) map[string]uint64 {
	times := map[string]uint64{}
	for line := range strings.Lines(printed) {
		var symbol string
		var ns uint64
		if n, _ := fmt.Sscanf(line, "around %s %d", &symbol, &ns); n == 2 {
			times[symbol] = ns
		}
	}
	return times
}
