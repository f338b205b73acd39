package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gputap/gputap/cmd/internal/report"
)

// Scenarios reproduce the listings that older tools published, and the cases that those tools got wrong.
var Scenarios = []Scenario{
	{"leak3", "three allocations of 8 MiB, two freed, the third unfreed at exit", []part{{
		workload: "leak3",
		steps: []step{
			{name: "allocated", bytes: 25_165_824, allocations: 3}, {name: "freed", bytes: 8_388_608, allocations: 1},
		},
		end: func(s *stage) checks {
			return checks{{"exit: unfreed at exit in the listing", uint64(8_388_608), s.now.Processes[0].UnfreedBytes}}
		},
	}}},
	{"train", "10 allocations of two threads; one thread frees an allocation of the other", []part{{
		workload: "train",
		steps: []step{{name: "live", bytes: 70*mib + 258*kib, allocations: 10},
			{name: "freed", bytes: 54*mib + 258*kib, allocations: 9}},
	}}},
	{"procs4", "four processes at once", []part{{
		workload: "procs4",
		steps:    []step{{name: "live", bytes: 238*mib + 4*129*kib, allocations: 31}},
		end:      procs4,
	}}},
	{"threads5", "five threads of one process", []part{{
		workload: "threads5",
		steps: []step{{name: "first", bytes: 102 * mib, allocations: 6},
			{name: "second", bytes: 142 * mib, allocations: 8}},
	}}},
	{"anomaly", "one allocation of 2,096 MB among many of 10 MB", []part{{
		workload: "anomaly",
		steps:    []step{{name: "live", bytes: 2258 * mib, allocations: 18}},
		end:      oneOutlier,
	}}},
	{"launches", "1,000 iterations of two kernels", []part{{
		workload: "launches",
		end: func(s *stage) checks {
			p := s.now.Processes[0]
			return checks{
				{"exit: launches in the listing", uint64(2000), sum(p.Launches)},
				{"exit: kernel names", 2, len(p.Launches)},
			}
		},
	}}},
	{"copies", "known bytes in a time that the stub measures", []part{{workload: "copies", end: throughput}}},
	{"hard", "cases that other tracers get wrong", hardParts},
	{"expandable", "physical memory under mappings, as in PyTorch's expandable segments", []part{{
		workload: "expandable",
		steps: []step{
			{name: "live", bytes: 64 * mib, allocations: 5}, {name: "half", bytes: 42 * mib, allocations: 3},
			{name: "end", bytes: 22 * mib, allocations: 2},
		},
	}}},
	{"life", "memory that ends with a context, a pool, a graph, a module or its last reference", lifeParts},
	{"shared", "memory that two processes or two APIs share; it is counted once", sharedParts},
	{"storm", "launches on every CPU, as fast as possible", []part{{
		workload: "storm", timed: true, totals: stormTotals,
	}}},
}

// procs4 compares the four totals with the listing, which printed MB with two decimals.
func procs4(s *stage) checks {
	var totals []string
	for _, p := range s.now.Processes {
		totals = append(totals, fmt.Sprintf("%.2f", float64(p.UnfreedBytes)/mib))
	}
	slices.Sort(totals)
	return checks{{"exit: MB per process", "[42.13 52.13 62.13 82.13]", fmt.Sprint(totals)}}
}

func oneOutlier(s *stage) checks {
	checks := checks{{"exit: alerts", 1, len(s.now.Alerts)}}
	if len(s.now.Alerts) == 0 {
		return checks
	}
	a := s.now.Alerts[0]
	return append(checks,
		Check{"alert: rule", "alloc_size", a.Rule},
		Check{"alert: process", s.now.Processes[0].PID, a.PID},
		Check{"alert: thread named", true, a.TID != 0 && a.TID != a.PID},
		Check{"alert: address named", true, a.Address != "" && a.Address != "0x0"},
		Check{"alert: bytes", uint64(2096 * mib), a.Bytes},
	)
}

// stormTotals compares the stub's calls with the sum of the events that gputap saw and those that it counted as lost.
func stormTotals(s *stage) checks {
	var made, seen uint64
	for _, i := range s.images {
		for symbol, c := range i.Calls {
			if probed(symbol) {
				made += c.OK + c.Failed
			}
		}
	}
	for _, p := range s.now.Processes {
		for _, c := range p.Calls {
			seen += c.OK + c.Failed
		}
	}
	// The rate is per CPU time of the workload, because other programs may take the CPUs.
	cpu := s.workload.ProcessState.UserTime() + s.workload.ProcessState.SystemTime()
	return checks{
		{"exit: events seen + events counted lost", made, seen + sum(s.now.Lost)},
		{
			fmt.Sprintf("exit: more than 50,000 calls per CPU second (%d calls, %.1f CPU s, %d lost)",
				made, cpu.Seconds(), sum(s.now.Lost)),
			true, float64(made) > 50_000*cpu.Seconds(),
		},
	}
}

// throughput compares the bytes with the stub's, and the rates with bounds. Each copy as gputap times it contains the
// time that the stub measured inside the call, and is contained in the time that the workload measured around it.
func throughput(s *stage) checks {
	if len(s.images) != 1 {
		return checks{{"the stub's totals", 1, len(s.images)}}
	}
	calls, around := s.images[0].Calls, timesAround(s.printed.String())
	var list checks
	for _, d := range []struct{ direction, symbol, async string }{
		{"HtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2"}, {"DtoH", "cuMemcpyDtoH_v2", ""},
		{"DtoD", "cuMemcpyDtoD_v2", ""},
	} {
		got, want := s.now.Processes[0].Copies[d.direction], calls[d.symbol]
		if got == nil {
			got = &report.Copy{}
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
