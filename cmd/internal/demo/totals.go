package demo

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ianlancetaylor/demangle"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/cmd/internal/stub"
	"github.com/gputap/gputap/schema"
)

// atStep compares live memory of every process that the stub knows, and of all of them with the listing.
func (s *stage) atStep(st step) (list checks) {
	for n := range s.images {
		i := &s.images[n]
		isLater := func(o stub.Image) bool { return o.PID == i.PID && o.Loaded > i.Loaded }
		if slices.ContainsFunc(s.images, isLater) {
			continue // exec replaced this image; the totals at the end include it
		}
		p := processOf(s.now, i)
		if p == nil {
			p = &report.Process{}
		}
		who := fmt.Sprintf("%s: process %d ", st.name, n+1)
		list.add(who+"live bytes", i.LiveBytes, p.LiveBytes)
		list.add(who+"live allocations", i.LiveAllocations, p.LiveAllocations)
		for _, class := range union(i.Classes, p.Classes) {
			list.addUnlessZero(who+"class "+class, i.Classes[class], p.Classes[class])
		}
		onGPU := map[string]uint64{}
		for uuid, g := range p.GPUs {
			onGPU[uuid] = g.LiveBytes
		}
		for _, uuid := range union(i.Cards, onGPU) {
			list.addUnlessZero(who+"on "+uuid, i.Cards[uuid], onGPU[uuid])
		}
		list.addUnlessZero(who+"host memory, bytes", i.HostBytes, p.HostMemory.LiveBytes)
		list.addUnlessZero(who+"host memory, allocations", i.HostAllocations, p.HostMemory.LiveAllocations)
		list.addUnlessZero(who+"holders", i.Holders, p.Holders.Count)
	}
	if len(st.holders) > 0 {
		expected, observed := s.holders(st.holders)
		list.add(st.name+": holders", fmt.Sprint(expected), fmt.Sprint(observed))
	}
	if st.allocations > 0 {
		var bytes, allocations uint64
		for _, p := range s.now.Processes {
			bytes += p.LiveBytes
			allocations += p.LiveAllocations
		}
		list.add(st.name+": live bytes in the listing", st.bytes, bytes)
		list.add(st.name+": live allocations in the listing", st.allocations, allocations)
	}
	return list
}

// holder is one that gputap must list for the last process of the step.
type holder struct {
	class string
	owned bool // the first process of the step owns the memory
}

// holders lists the holders of the last process, newest first.
func (s *stage) holders(want []holder) (expected, observed []string) {
	for _, h := range want {
		owner := uint32(0)
		if h.owned {
			owner = s.images[0].PID
		}
		expected = append(expected, fmt.Sprintf("%s of process %d", h.class, owner))
	}
	if opener := processOf(s.now, &s.images[len(s.images)-1]); opener != nil {
		for _, h := range opener.Holders.List {
			observed = append(observed, fmt.Sprintf("%s of process %d", h.Class, h.OwnerPID))
		}
	}
	return expected, observed
}

func union(a, b map[string]uint64) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// totals compares all figures after the end: for each process its calls by result, its unfreed memory and its launches
// by kernel. It also checks that no event was lost.
func (s *stage) totals() (list checks) {
	var order []*report.Process
	images := map[*report.Process][]stub.Image{}
	for i := range s.images {
		p := processOf(s.now, &s.images[i])
		if p == nil {
			list.add(fmt.Sprintf("process %d seen", s.images[i].PID), true, false)
			continue
		}
		if images[p] == nil {
			order = append(order, p)
		}
		images[p] = append(images[p], s.images[i])
	}
	for i, p := range order {
		list = append(list, processTotals(fmt.Sprintf("exit: process %d ", i+1), p, images[p])...)
	}
	list.add("exit: events lost", uint64(0), sum(s.now.Lost))
	return list
}

func processTotals(who string, p *report.Process, images []stub.Image) (list checks) {
	want, calls, kernels := stub.Image{}, map[string]stub.Call{}, map[string]uint64{}
	for _, i := range images {
		want.LiveBytes += i.LiveBytes
		want.LiveAllocations += i.LiveAllocations
		want.ContextBytes += i.ContextBytes
		want.ContextAllocations += i.ContextAllocations
		want.Holders += i.Holders
		for symbol, c := range i.Calls {
			calls[symbol] = stub.Call{OK: calls[symbol].OK + c.OK, Failed: calls[symbol].Failed + c.Failed}
		}
		for name, n := range i.Kernels {
			kernels[demangle.Filter(name)] += n
		}
	}
	list.add(who+"ended", true, p.Ended)
	list.add(who+"live bytes", uint64(0), p.LiveBytes)
	list.add(who+"unfreed at exit, bytes", want.LiveBytes, p.UnfreedBytes)
	list.add(who+"unfreed at exit, allocations", want.LiveAllocations, p.UnfreedAllocations)
	if want.ContextAllocations+p.ContextAllocations > 0 {
		list.add(who+"freed with contexts, bytes", want.ContextBytes, p.ContextBytes)
		list.add(who+"freed with contexts, allocations", want.ContextAllocations, p.ContextAllocations)
	}
	list.addUnlessZero(who+"holders not closed", want.Holders, p.Holders.UnclosedAtExit)
	for _, symbol := range slices.Sorted(maps.Keys(calls)) {
		if !probed(symbol) {
			continue
		}
		got := report.Call{}
		if c := p.Calls[symbol]; c != nil {
			got = *c
		}
		list.add(who+symbol+" ok", calls[symbol].OK, got.OK+got.Recorded)
		list.addUnlessZero(who+symbol+" failed", calls[symbol].Failed, got.Failed)
	}
	for _, name := range slices.Sorted(maps.Keys(kernels)) {
		list.add(who+"launches of "+name, kernels[name], p.Launches[name])
	}
	return list
}

// probed reports whether gputap counts calls of a symbol. The stub exports more symbols than that.
func probed(symbol string) bool {
	return slices.ContainsFunc(schema.Calls, func(c schema.Call) bool {
		return c.Symbol == symbol && c.Kind != schema.KindNone
	})
}

func sum(counts map[string]uint64) (total uint64) {
	for _, n := range counts {
		total += n
	}
	return total
}
