package main

import (
	"fmt"
	"slices"
	"strings"
)

// scenarios reproduce the listings that older tools published, and the cases that those tools got
// wrong.
var scenarios = []scenario{
	{"leak3", "three allocations of 8 MiB, two freed, the third unfreed at exit", []part{{
		workload: "leak3",
		steps:    []step{{name: "allocated", bytes: 25_165_824, allocations: 3}, {name: "freed", bytes: 8_388_608, allocations: 1}},
		end: func(_ *stage, now *snapshot) []check {
			return []check{{what: "exit: unfreed at exit in the listing", expected: uint64(8_388_608), observed: now.Processes[0].UnfreedBytes}}
		},
	}}},
	{"train", "10 addresses of two threads, one freed by the other thread", []part{{
		workload: "train",
		steps:    []step{{name: "live", bytes: 70*mib + 258*kib, allocations: 10}, {name: "freed", bytes: 54*mib + 258*kib, allocations: 9}},
	}}},
	{"procs4", "four processes at once", []part{{
		workload: "procs4",
		steps:    []step{{name: "live", bytes: 238*mib + 4*129*kib, allocations: 31}},
		end:      procs4,
	}}},
	{"threads5", "five threads of one process", []part{{
		workload: "threads5",
		steps:    []step{{name: "first", bytes: 102 * mib, allocations: 6}, {name: "second", bytes: 142 * mib, allocations: 8}},
	}}},
	{"anomaly", "one allocation of 2,096 MB among many of 10 MB", []part{{
		workload: "anomaly",
		steps:    []step{{name: "live", bytes: 2258 * mib, allocations: 18}},
		end:      oneOutlier,
	}}},
	{"launches", "1,000 iterations of two kernels", []part{{
		workload: "launches",
		end: func(_ *stage, now *snapshot) []check {
			p := now.Processes[0]
			return []check{
				{what: "exit: launches in the listing", expected: uint64(2000), observed: sum(p.Launches)},
				{what: "exit: kernel names", expected: 2, observed: len(p.Launches)},
			}
		},
	}}},
	{"copies", "known bytes at a known rate", []part{{workload: "copies", end: throughput}}},
	{"hard", "what other tracers get wrong, case by case", hardParts},
	{"expandable", "physical memory under mappings, as PyTorch's expandable segments use it", []part{{
		workload: "expandable",
		steps: []step{
			{name: "live", bytes: 64 * mib, allocations: 5}, {name: "half", bytes: 42 * mib, allocations: 3},
			{name: "end", bytes: 22 * mib, allocations: 2},
		},
	}}},
	{"life", "what ends with a context, a pool, a graph, a module or its last reference", lifeParts},
	{"shared", "memory that another process or API has: it is counted once", sharedParts},
	{"storm", "launches as fast as the machine goes, on every CPU", []part{{
		workload: "storm", args: secondsArg, totals: stormTotals,
	}}},
}

// procs4 compares with the listing's four totals, in MB with two decimals as it printed them.
func procs4(_ *stage, now *snapshot) []check {
	var totals []string
	for _, p := range now.Processes {
		totals = append(totals, fmt.Sprintf("%.2f", float64(p.UnfreedBytes)/mib))
	}
	slices.Sort(totals)
	return []check{{what: "exit: MB per process", expected: "[42.13 52.13 62.13 82.13]", observed: fmt.Sprint(totals)}}
}

func oneOutlier(_ *stage, now *snapshot) []check {
	rows := []check{{what: "exit: alerts", expected: 1, observed: len(now.Alerts)}}
	if len(now.Alerts) == 0 {
		return rows
	}
	a := now.Alerts[0]
	return append(rows,
		check{what: "alert: rule", expected: "alloc_size", observed: a.Rule},
		check{what: "alert: process", expected: now.Processes[0].PID, observed: a.PID},
		check{what: "alert: thread named", expected: true, observed: a.TID != 0 && a.TID != a.PID},
		check{what: "alert: address named", expected: true, observed: a.Address != "" && a.Address != "0x0"},
		check{what: "alert: bytes", expected: uint64(2096 * mib), observed: a.Bytes},
	)
}

// throughput compares the bytes with the stub's, and the rates with bounds. Each copy as gputap times it contains the
// time that the stub measured inside the call, and is contained in the time that the workload measured around it.
func throughput(s *stage, now *snapshot) []check {
	images, err := readTruth(s.truths)
	if err != nil || len(images) != 1 {
		return []check{{what: "the stub's totals", expected: 1, observed: len(images)}}
	}
	around, err := timesAround(s.printed.String())
	if err != nil {
		return []check{{what: "the workload's times: " + err.Error(), expected: true, observed: false}}
	}
	p := now.Processes[0]
	var rows []check
	for _, d := range []struct{ direction, symbol, async string }{
		{"HtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2"}, {"DtoH", "cuMemcpyDtoH_v2", ""}, {"DtoD", "cuMemcpyDtoD_v2", ""},
	} {
		c, t := p.Copies[d.direction], images[0].calls[d.symbol]
		if c == nil {
			c = &copyJSON{}
		}
		rows = append(rows,
			check{what: "exit: " + d.direction + " bytes", expected: t.bytes + images[0].calls[d.async].bytes, observed: c.Bytes},
			check{
				what:     "exit: " + d.direction + " bytes/s",
				expected: bounds{perSecond(t.bytes, around[d.symbol]), perSecond(t.bytes, t.busyNS)},
				observed: perSecond(c.Bytes-c.AsyncBytes, uint64(c.BusySeconds*1e9+0.5)),
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

// stormTotals: what was seen and what was counted as lost is what the stub counted.
func stormTotals(s *stage, now *snapshot) ([]check, error) {
	images, err := readTruth(s.truths)
	if err != nil {
		return nil, err
	}
	var made, seen uint64
	for _, t := range images {
		for symbol, c := range t.calls {
			if probed(symbol) {
				made += c.ok + c.failed
			}
		}
	}
	for _, p := range now.Processes {
		for _, c := range p.Calls {
			seen += c.OK + c.Failed
		}
	}
	return []check{
		{what: "exit: events seen + events counted lost", expected: made, observed: seen + sum(now.Lost)},
		{what: fmt.Sprintf("exit: more than 100,000 calls/s (%d in %d s, %d lost)", made, s.seconds, sum(now.Lost)), expected: true, observed: made > uint64(100_000*s.seconds)},
	}, nil
}
