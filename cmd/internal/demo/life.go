package demo

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gputap/gputap/cmd/internal/pipeline"
)

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
	}, end: func(_ *stage, now *pipeline.Snapshot) []Check {
		return []Check{{What: "unknown handles", Expected: uint64(0), Observed: now.Counters.UnknownHandles}}
	}},
	{workload: "life-graphs", steps: []step{
		{name: "ready"}, {name: "launched", bytes: 20 * mib, allocations: 2}, {name: "again", bytes: 20 * mib,
			allocations: 2},
		{name: "destroyed", bytes: 20 * mib, allocations: 2}, {name: "freed"},
	}, end: func(_ *stage, now *pipeline.Snapshot) []Check {
		return []Check{
			{What: "graph launches with unknown kernels", Expected: uint64(0),
				Observed: now.Processes[0].GraphLaunchesPartial},
			{What: "unmatched frees", Expected: uint64(0), Observed: now.Counters.UnmatchedFrees},
			{What: "allocations whose end was never seen", Expected: uint64(0), Observed: now.Counters.UnseenEnds},
		}
	}},
	{workload: "life-modules"},
	{workload: "life-nested", steps: []step{{name: "pushed"}, {name: "popped", bytes: 4095 * mib, allocations: 12}}},
	{workload: "life-captures", steps: []step{{name: "ended"}, {name: "second"}}},
})

// knownContexts checks that gputap knew the memory of every context that ended.
func knownContexts(_ *stage, now *pipeline.Snapshot) []Check {
	return []Check{{What: "unknown contexts that ended", Expected: uint64(0), Observed: now.Counters.UnknownContexts}}
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
		{name: "half", holders: []holder{{"vmm", false}, {"vmm", true}}}, {name: "gone", bytes: 24 * mib,
			allocations: 2},
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

// holder is one that gputap must list for the last process of the step.
type holder struct {
	class string
	owned bool // the first process of the step owns the memory
}

// holders compares the list of holders, newest first.
func holders(name string, want []holder, images []truth, now *pipeline.Snapshot) []Check {
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
	return []Check{{What: name + ": holders", Expected: fmt.Sprint(expected), Observed: fmt.Sprint(observed)}}
}

// details compares live memory by class, by GPU and on the host, and the number of holders. It leaves out figures that
// are 0 on both sides.
func details(who string, t *truth, p *pipeline.Process) []Check {
	var rows []Check
	figure := func(what string, expected, observed uint64) {
		if expected|observed != 0 {
			rows = append(rows, Check{What: who + what, Expected: expected, Observed: observed})
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
