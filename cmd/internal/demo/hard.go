package demo

import "github.com/gputap/gputap/cmd/internal/report"

var hardParts = []part{
	{workload: "hard-free-unknown", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}},
		end: failures("cuMemFree_v2", 1, 3)},
	{workload: "hard-free-null", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}},
		end: func(s *stage) checks {
			return checks{{"free(0) counted separately", uint64(3), s.now.Counters.NullFrees}}
		}},
	{workload: "hard-alloc-fail", steps: []step{{name: "live", bytes: 5 * mib, allocations: 2}},
		end: failures("cuMemAlloc_v2", 2, 2)},
	{workload: "hard-free-fail", steps: []step{{name: "live"}, {name: "freed"}}},
	{workload: "hard-realloc", steps: []step{{name: "live", bytes: 6 * mib, allocations: 2},
		{name: "freed", bytes: 2 * mib, allocations: 1}}, end: func(s *stage) checks {
		return checks{
			{"allocations whose end was never seen", uint64(2), s.now.Counters.UnseenEnds},
			{"allocations over a live address", uint64(2), s.now.Counters.ReallocOverLive},
		}
	}},
	{workload: "hard-race", steps: []step{{name: "live", bytes: 1 * mib, allocations: 1}},
		end: func(s *stage) checks {
			return checks{
				{"every raced free found its allocation", uint64(0), s.now.Counters.UnseenEnds},
				{"some frees raced", true, s.now.Counters.LateFrees > 0},
				{"unmatched frees", uint64(0), s.now.Counters.UnmatchedFrees},
			}
		}},
	{workload: "hard-fork", steps: []step{{name: "live"}}},
	{workload: "hard-exec", steps: []step{{name: "live"}, {name: "second"}}},
	{workload: "hard-rename", steps: []step{{name: "live"}, {name: "freed"}}},
	{workload: "hard-pidreuse",
		end: func(s *stage) checks {
			processes, most := map[uint32]int{}, 0
			for _, p := range s.now.Processes {
				processes[p.PID]++
				most = max(most, processes[p.PID])
			}
			return checks{{"processes under the reused pid", 2, most}}
		}},
	{workload: "hard-late", late: true, steps: []step{{name: "attached"}}, totals: lateTotals},
	{workload: "hard-kill", killed: true, steps: []step{{name: "live", bytes: 3 * mib, allocations: 2}}},
}

// failures checks how many calls of a symbol failed with a code.
func failures(symbol string, code uint32, n uint64) func(*stage) checks {
	return func(s *stage) checks {
		c := s.now.Processes[0].Calls[symbol]
		if c == nil {
			c = &report.Call{}
		}
		return checks{{symbol + " failed by code", n, c.Errors[code]}}
	}
}

// lateTotals checks a process that began before gputap: only later calls are seen, and the evidence says "late".
func lateTotals(s *stage) checks {
	if len(s.now.Processes) != 1 {
		return checks{{"processes", 1, len(s.now.Processes)}}
	}
	p := s.now.Processes[0]
	return checks{
		{"evidence", "late", p.Evidence},
		{"frees of earlier allocations", uint64(2), s.now.Counters.UnmatchedFrees},
		{"unfreed at exit, allocations seen", uint64(1), p.UnfreedAllocations},
		{"events lost", uint64(0), sum(s.now.Lost)},
	}
}
