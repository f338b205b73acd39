package demo

import (
	"fmt"
	"strings"

	"github.com/gputap/gputap/cmd/internal/pipeline"
)

// throughput compares the bytes with the stub's, and the rates with bounds. Each copy as gputap times it contains the
// time that the stub measured inside the call, and is contained in the time that the workload measured around it.
func throughput(s *stage, now *pipeline.Snapshot) []Check {
	images, err := readTruth(s.truths)
	if err != nil || len(images) != 1 {
		return []Check{{What: "the stub's totals", Expected: 1, Observed: len(images)}}
	}
	around, err := timesAround(s.printed.String())
	if err != nil {
		return []Check{{What: "the workload's times: " + err.Error(), Expected: true, Observed: false}}
	}
	p := now.Processes[0]
	var rows []Check
	for _, d := range []struct{ direction, symbol, async string }{
		{"HtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2"}, {"DtoH", "cuMemcpyDtoH_v2", ""},
		{"DtoD", "cuMemcpyDtoD_v2", ""},
	} {
		c, t := p.Copies[d.direction], images[0].calls[d.symbol]
		if c == nil {
			c = &pipeline.Copy{}
		}
		rows = append(rows,
			Check{What: "exit: " + d.direction + " bytes", Expected: t.bytes + images[0].calls[d.async].bytes,
				Observed: c.Bytes},
			Check{
				What:     "exit: " + d.direction + " bytes/s",
				Expected: bounds{perSecond(t.bytes, around[d.symbol]), perSecond(t.bytes, t.busyNS)},
				Observed: perSecond(c.Bytes-c.AsyncBytes, uint64(c.BusySeconds*1e9+0.5)),
			})
	}
	return rows
}

func perSecond(bytes, ns uint64) float64 {
	if ns == 0 {
		return 0 // JSON has no infinity
	}
	return float64(bytes) / (float64(ns) / 1e9)
}

// timesAround reads the workload's lines "around SYMBOL NS": nanoseconds around all calls of a symbol.
func timesAround(printed string) (map[string]uint64, error) {
	times := map[string]uint64{}
	for line := range strings.Lines(printed) {
		var symbol string
		var ns uint64
		if !strings.HasPrefix(line, "around ") {
			continue
		}
		if _, err := fmt.Sscanf(line, "around %s %d", &symbol, &ns); err != nil {
			return nil, fmt.Errorf("read %q: %w", strings.TrimSpace(line), err)
		}
		times[symbol] = ns
	}
	return times, nil
}
