package demo

// lifeParts are the events that begin and end an allocation. At each step the stub says which memory is live.
var lifeParts = onePipeline([]part{
	{workload: "life-contexts", steps: []step{
		{name: "live", bytes: 492 * mib, allocations: 14}, {name: "destroyed", bytes: 470 * mib, allocations: 10},
		{name: "reset", bytes: 448 * mib, allocations: 6}, {name: "one-user-left", bytes: 694 * mib, allocations: 13},
		{name: "released", bytes: 672 * mib, allocations: 9}, {name: "again", bytes: 677 * mib, allocations: 10},
	}, end: knownContexts},
	{workload: "life-green", steps: []step{
		{name: "live", bytes: 3 * mib, allocations: 2}, {name: "destroyed", bytes: 3 * mib, allocations: 2},
		{name: "released", bytes: 3 * mib, allocations: 2}, {name: "ended"},
	}, end: knownContexts},
	{workload: "life-arrays", steps: []step{{name: "live"}, {name: "half"}, {name: "again"}}},
	{workload: "life-pools", steps: []step{
		{name: "live", bytes: 120 * mib, allocations: 4}, {name: "destroyed", bytes: 120 * mib, allocations: 4},
		{name: "freed", bytes: 64 * mib, allocations: 1},
	}},
	{workload: "life-vmm", steps: []step{
		{name: "live", bytes: 24 * mib, allocations: 2}, {name: "held", bytes: 24 * mib, allocations: 2},
		{name: "retained", bytes: 16 * mib, allocations: 1}, {name: "gone"},
	}, end: func(s *stage) checks {
		return checks{{"unknown handles", uint64(0), s.now.Counters.UnknownHandles}}
	}},
	{workload: "life-graphs", steps: []step{
		{name: "ready"}, {name: "launched", bytes: 20 * mib, allocations: 2},
		{name: "again", bytes: 20 * mib, allocations: 2}, {name: "destroyed", bytes: 20 * mib, allocations: 2},
		{name: "freed"},
	}, end: func(s *stage) checks {
		return checks{
			{"graph launches with unknown kernels", uint64(0), s.now.Processes[0].GraphLaunchesPartial},
			{"unmatched frees", uint64(0), s.now.Counters.UnmatchedFrees},
			{"allocations whose end was never seen", uint64(0), s.now.Counters.UnseenEnds},
		}
	}},
	{workload: "life-modules"},
	{workload: "life-nested", steps: []step{{name: "pushed"}, {name: "popped", bytes: 4095 * mib, allocations: 12}}},
	{workload: "life-captures", steps: []step{{name: "ended"}, {name: "second"}}},
})

// knownContexts checks that gputap knew the memory of every context that ended.
func knownContexts(s *stage) checks {
	return checks{{"unknown contexts that ended", uint64(0), s.now.Counters.UnknownContexts}}
}

// sharedParts are memory that one process allocates, and others open. Only the first is charged with it.
var sharedParts = onePipeline([]part{
	{workload: "shared-ipc", steps: []step{
		{name: "opened", holders: []holder{{"ipc", true}}}, {name: "closed-once", holders: []holder{{"ipc", true}}},
		{name: "closed", bytes: 17 * mib, allocations: 2}, {name: "in-context", holders: []holder{{"ipc", true}}},
		{name: "context-gone"}, {name: "kept", holders: []holder{{"ipc", true}}},
	}},
	{workload: "shared-vmm", steps: []step{
		{name: "mapped", bytes: 24 * mib, allocations: 2, holders: []holder{{"vmm", false}, {"vmm", true}}},
		{name: "half", holders: []holder{{"vmm", false}, {"vmm", true}}},
		{name: "gone", bytes: 24 * mib, allocations: 2},
	}},
	{workload: "shared-pool", steps: []step{
		{name: "opened", bytes: 4 * mib, allocations: 1, holders: []holder{{"ipc", true}}},
		{name: "freed", bytes: 4 * mib, allocations: 1},
	}},
	{workload: "shared-external", steps: []step{
		{name: "mapped", holders: []holder{{"external", false}, {"external", false}, {"external", false}}},
		{name: "freed", holders: []holder{{"external", false}}}, {name: "gone"},
	}},
})

// onePipeline runs the parts one after the other under one pipeline, which keeps its counters.
func onePipeline(parts []part) []part {
	for i := range parts[:len(parts)-1] {
		parts[i].keepPipeline = true
	}
	return parts
}
