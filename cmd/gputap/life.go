package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
)

// lifeParts are what begins and ends the life of memory; the stub says at each step what is live.
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
	}, end: func(_ *stage, now *snapshot) []check {
		return []check{{what: "unknown handles", expected: uint64(0), observed: now.Counters.UnknownHandles}}
	}},
	{workload: "life-graphs", steps: []step{
		{name: "ready"}, {name: "launched", bytes: 20 * mib, allocations: 2}, {name: "again", bytes: 20 * mib, allocations: 2},
		{name: "destroyed", bytes: 20 * mib, allocations: 2}, {name: "freed"},
	}, end: func(_ *stage, now *snapshot) []check {
		return []check{
			{what: "graph launches that are not understood", expected: uint64(0), observed: now.Processes[0].GraphLaunchesPartial},
			{what: "unmatched frees", expected: uint64(0), observed: now.Counters.UnmatchedFrees},
			{what: "lives whose end was never seen", expected: uint64(0), observed: now.Counters.UnseenEnds},
		}
	}},
	{workload: "life-modules"},
	{workload: "life-nested", steps: []step{{name: "pushed"}, {name: "popped", bytes: 4095 * mib, allocations: 12}}},
	{workload: "life-captures", steps: []step{{name: "ended"}, {name: "second"}}},
})

// knownContexts: of each context that ended it was known what ended with it.
func knownContexts(_ *stage, now *snapshot) []check {
	return []check{{what: "contexts that ended unknown", expected: uint64(0), observed: now.Counters.UnknownContexts}}
}

// sharedParts are memory that is counted where it was made, and held elsewhere.
var sharedParts = onePipeline([]part{
	{workload: "shared-ipc", steps: []step{
		{name: "opened", holders: []holder{{"ipc", true}}}, {name: "closed-once", holders: []holder{{"ipc", true}}},
		{name: "closed", bytes: 17 * mib, allocations: 2}, {name: "in-context", holders: []holder{{"ipc", true}}},
		{name: "context-gone"}, {name: "kept", holders: []holder{{"ipc", true}}},
	}},
	{workload: "shared-vmm", steps: []step{
		{name: "mapped", bytes: 24 * mib, allocations: 2, holders: []holder{{"vmm", false}, {"vmm", true}}},
		{name: "half", holders: []holder{{"vmm", false}, {"vmm", true}}}, {name: "gone", bytes: 24 * mib, allocations: 2},
	}},
	{workload: "shared-pool", steps: []step{
		{name: "opened", bytes: 4 * mib, allocations: 1, holders: []holder{{"ipc", true}}}, {name: "freed", bytes: 4 * mib, allocations: 1},
	}},
	{workload: "shared-external", steps: []step{
		{name: "mapped", holders: []holder{{"external", false}, {"external", false}, {"external", false}}},
		{name: "freed", holders: []holder{{"external", false}}}, {name: "gone"},
	}},
})

// onePipeline has parts run one after the other while one pipeline watches: counters go on from part to part.
func onePipeline(parts []part) []part {
	for i := range parts[:len(parts)-1] {
		parts[i].goesOn = true
	}
	return parts
}

// holder is one that must be listed: of the last process of the step, or the only one.
type holder struct {
	class string
	owned bool // by the first process of the step
}

// holders compares a list, the newest first.
func holders(name string, want []holder, images []truth, now *snapshot) []check {
	if len(want) == 0 {
		return nil
	}
	owner, opener := images[0].pid, processOf(now, &images[len(images)-1])
	var expected, observed []string
	for _, h := range want {
		by := uint32(0)
		if h.owned {
			by = owner
		}
		expected = append(expected, fmt.Sprintf("%s of process %d", h.class, by))
	}
	for _, h := range opener.Holders.List {
		observed = append(observed, fmt.Sprintf("%s of process %d", h.Class, h.OwnerPID))
	}
	return []check{{what: name + ": holders", expected: fmt.Sprint(expected), observed: fmt.Sprint(observed)}}
}

// details compares what is live by memory class, card and side, and what is held; amounts that are 0 on both sides are
// passed over.
func details(who string, t *truth, p *processJSON) []check {
	if p == nil {
		p = newProcessJSON(&process.Info{})
	}
	var rows []check
	figure := func(what string, expected, observed uint64) {
		if expected|observed != 0 {
			rows = append(rows, check{what: who + what, expected: expected, observed: observed})
		}
	}
	for _, class := range union(t.classes, p.Classes) {
		figure("class "+class, t.classes[class], p.Classes[class])
	}
	onGPU := map[string]uint64{}
	for uuid, g := range p.GPUs {
		onGPU[uuid] = g.LiveBytes
	}
	for _, uuid := range union(t.cards, onGPU) {
		figure("on "+uuid, t.cards[uuid], onGPU[uuid])
	}
	figure("host memory, bytes", t.hostBytes, p.HostMemory.LiveBytes)
	figure("host memory, allocations", t.hostAllocations, p.HostMemory.LiveAllocations)
	figure("holders", t.holders, p.Holders.Count)
	return rows
}

func union(a, b map[string]uint64) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
