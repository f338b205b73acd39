package main

import "github.com/gputap/gputap/schema"

var hardParts = []part{
	{workload: "hard-free-unknown", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}}, end: failures("cuMemFree_v2", 1, 3)},
	{workload: "hard-free-null", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}}, end: func(_ *stage, now *snapshot) []check {
		return []check{{what: "free(0) counted apart", expected: uint64(3), observed: now.Counters.NullFrees}}
	}},
	{workload: "hard-alloc-fail", steps: []step{{name: "live", bytes: 5 * mib, allocations: 2}}, end: failures("cuMemAlloc_v2", 2, 2)},
	{workload: "hard-free-fail", steps: []step{{name: "live"}, {name: "freed"}}},
	{workload: "hard-realloc", steps: []step{{name: "live", bytes: 6 * mib, allocations: 2}, {name: "freed", bytes: 2 * mib, allocations: 1}}, end: func(_ *stage, now *snapshot) []check {
		return []check{
			{what: "lives whose end was never seen", expected: uint64(2), observed: now.Counters.UnseenEnds},
			{what: "allocations over a live address", expected: uint64(2), observed: now.Counters.ReallocOverLive},
		}
	}},
	{workload: "hard-race", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}}, end: func(_ *stage, now *snapshot) []check {
		return []check{
			{what: "every raced free found its life", expected: uint64(0), observed: now.Counters.UnseenEnds},
			{what: "some frees raced", expected: true, observed: now.Counters.LateFrees > 0},
			{what: "unmatched frees", expected: uint64(0), observed: now.Counters.UnmatchedFrees},
		}
	}},
	{workload: "hard-fork", steps: []step{{name: "live"}, {name: "child-gone", unchecked: true}, {name: "freed", unchecked: true}}},
	{workload: "hard-exec", steps: []step{{name: "live"}, {name: "second"}}},
	{workload: "hard-pidreuse", steps: []step{{name: "first", unchecked: true}, {name: "live", unchecked: true}}, end: func(_ *stage, now *snapshot) []check {
		identities := map[uint32]map[schema.KTime]bool{}
		reused := 0
		for _, p := range now.Processes {
			if identities[p.PID] == nil {
				identities[p.PID] = map[schema.KTime]bool{}
			}
			identities[p.PID][p.id.Start] = true
			reused = max(reused, len(identities[p.PID]))
		}
		return []check{{what: "processes under the reused pid", expected: 2, observed: reused}}
	}},
	{workload: "hard-late", late: true, steps: []step{{name: "attached", unchecked: true}, {name: "live", unchecked: true}}, totals: lateTotals},
	{workload: "hard-kill", killed: true, steps: []step{{name: "live", bytes: 3 * mib, allocations: 2}}},
}

// failures checks a symbol's failed calls by code.
func failures(symbol string, code uint32, n uint64) func(*stage, *snapshot) []check {
	return func(_ *stage, now *snapshot) []check {
		c := now.Processes[0].Calls[symbol]
		if c == nil {
			c = &callJSON{}
		}
		return []check{{what: symbol + " failed by code", expected: n, observed: c.Errors[code]}}
	}
}

// lateTotals: of a process that ran before gputap only what came after is seen, and it says so.
func lateTotals(_ *stage, now *snapshot) ([]check, error) {
	if len(now.Processes) != 1 {
		return []check{{what: "processes", expected: 1, observed: len(now.Processes)}}, nil
	}
	p := now.Processes[0]
	return []check{
		{what: "evidence", expected: "late", observed: p.Evidence},
		{what: "frees of what was allocated before", expected: uint64(2), observed: now.Counters.UnmatchedFrees},
		{what: "unfreed at exit, allocations seen", expected: uint64(1), observed: p.UnfreedAllocations},
		{what: "events lost", expected: uint64(0), observed: sum(now.Lost)},
	}, nil
}
