package demo

import (
	"github.com/gputap/gputap/schema"

	"github.com/gputap/gputap/cmd/internal/pipeline"
)

var hardParts = []part{
	{workload: "hard-free-unknown", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}},
		end: failures("cuMemFree_v2", 1, 3)},
	{workload: "hard-free-null", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}},
		end: func(_ *stage, now *pipeline.Snapshot) []Check {
			return []Check{{What: "free(0) counted separately", Expected: uint64(3), Observed: now.Counters.NullFrees}}
		}},
	{workload: "hard-alloc-fail", steps: []step{{name: "live", bytes: 5 * mib, allocations: 2}},
		end: failures("cuMemAlloc_v2", 2, 2)},
	{workload: "hard-free-fail", steps: []step{{name: "live"}, {name: "freed"}}},
	{workload: "hard-realloc", steps: []step{{name: "live", bytes: 6 * mib, allocations: 2},
		{name: "freed", bytes: 2 * mib, allocations: 1}}, end: func(_ *stage, now *pipeline.Snapshot) []Check {
		return []Check{
			{What: "allocations whose end was never seen", Expected: uint64(2), Observed: now.Counters.UnseenEnds},
			{What: "allocations over a live address", Expected: uint64(2), Observed: now.Counters.ReallocOverLive},
		}
	}},
	{workload: "hard-race", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}},
		end: func(_ *stage, now *pipeline.Snapshot) []Check {
			return []Check{
				{What: "every raced free found its allocation", Expected: uint64(0), Observed: now.Counters.UnseenEnds},
				{What: "some frees raced", Expected: true, Observed: now.Counters.LateFrees > 0},
				{What: "unmatched frees", Expected: uint64(0), Observed: now.Counters.UnmatchedFrees},
			}
		}},
	{workload: "hard-fork", steps: []step{{name: "live"}, {name: "child-gone", unchecked: true},
		{name: "freed", unchecked: true}}},
	{workload: "hard-exec", steps: []step{{name: "live"}, {name: "second"}}},
	{workload: "hard-pidreuse", steps: []step{{name: "first", unchecked: true}, {name: "live", unchecked: true}},
		end: func(_ *stage, now *pipeline.Snapshot) []Check {
			identities := map[uint32]map[schema.KTime]bool{}
			reused := 0
			for _, p := range now.Processes {
				if identities[p.PID] == nil {
					identities[p.PID] = map[schema.KTime]bool{}
				}
				identities[p.PID][p.ID().Start] = true
				reused = max(reused, len(identities[p.PID]))
			}
			return []Check{{What: "processes under the reused pid", Expected: 2, Observed: reused}}
		}},
	{workload: "hard-late", late: true, steps: []step{{name: "attached", unchecked: true},
		{name: "live", unchecked: true}}, totals: lateTotals},
	{workload: "hard-kill", killed: true, steps: []step{{name: "live", bytes: 3 * mib, allocations: 2}}},
}

// failures checks how many calls of a symbol failed with a code.
func failures(symbol string, code uint32, n uint64) func(*stage, *pipeline.Snapshot) []Check {
	return func(_ *stage, now *pipeline.Snapshot) []Check {
		c := now.Processes[0].Calls[symbol]
		if c == nil {
			c = &pipeline.Call{}
		}
		return []Check{{What: symbol + " failed by code", Expected: n, Observed: c.Errors[code]}}
	}
}

// lateTotals checks a process that began before gputap: only later calls are seen, and the evidence says "late".
func lateTotals(_ *stage, now *pipeline.Snapshot) ([]Check, error) {
	if len(now.Processes) != 1 {
		return []Check{{What: "processes", Expected: 1, Observed: len(now.Processes)}}, nil
	}
	p := now.Processes[0]
	return []Check{
		{What: "evidence", Expected: "late", Observed: p.Evidence},
		{What: "frees of earlier allocations", Expected: uint64(2), Observed: now.Counters.UnmatchedFrees},
		{What: "unfreed at exit, allocations seen", Expected: uint64(1), Observed: p.UnfreedAllocations},
		{What: "events lost", Expected: uint64(0), Observed: sum(now.Lost)},
	}, nil
}
