package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ianlancetaylor/demangle"
)

// totals compares everything after the end: per process every call by outcome, what was unfreed,
// launches per kernel, copies, and that nothing was lost.
func (s *stage) totals(now *snapshot) ([]check, error) {
	images, err := readTruth(s.truths)
	if err != nil {
		return nil, err
	}
	var order []*processJSON
	byProcess := map[*processJSON][]truth{}
	var rows []check
	for i := range images {
		p := processOf(now, &images[i])
		if p == nil {
			rows = append(rows, check{what: fmt.Sprintf("process %d seen", images[i].pid), expected: true, observed: false})
			continue
		}
		if byProcess[p] == nil {
			order = append(order, p)
		}
		byProcess[p] = append(byProcess[p], images[i])
	}
	for i, p := range order {
		rows = append(rows, processTotals(fmt.Sprintf("exit: process %d ", i+1), p, byProcess[p])...)
	}
	return append(rows, check{what: "exit: events lost", expected: uint64(0), observed: sum(now.Lost)}), nil
}

func processTotals(who string, p *processJSON, images []truth) []check {
	want := truth{calls: map[string]truthCall{}, kernels: map[string]uint64{}}
	for _, t := range images {
		want.liveBytes += t.liveBytes
		want.liveAllocations += t.liveAllocations
		want.peakBytes = max(want.peakBytes, t.peakBytes)
		want.contextBytes += t.contextBytes
		want.contextAllocations += t.contextAllocations
		want.holders += t.holders
		for symbol, c := range t.calls {
			all := want.calls[symbol]
			want.calls[symbol] = truthCall{all.ok + c.ok, all.failed + c.failed, all.bytes + c.bytes, all.busyNS + c.busyNS}
		}
		for name, n := range t.kernels {
			want.kernels[demangle.Filter(name)] += n
		}
	}
	rows := []check{
		{what: who + "ended", expected: true, observed: p.Ended},
		{what: who + "live bytes", expected: uint64(0), observed: p.LiveBytes},
		{what: who + "unfreed at exit, bytes", expected: want.liveBytes, observed: p.UnfreedBytes},
		{what: who + "unfreed at exit, allocations", expected: want.liveAllocations, observed: p.UnfreedAllocations},
	}
	if want.contextAllocations+p.ContextAllocations > 0 {
		rows = append(rows, check{what: who + "freed with contexts, bytes", expected: want.contextBytes, observed: p.ContextBytes},
			check{what: who + "freed with contexts, allocations", expected: want.contextAllocations, observed: p.ContextAllocations})
	}
	if want.holders+p.Holders.UnclosedAtExit > 0 {
		rows = append(rows, check{what: who + "holders not closed", expected: want.holders, observed: p.Holders.UnclosedAtExit})
	}
	for _, symbol := range slices.Sorted(maps.Keys(want.calls)) {
		if !probed(symbol) {
			continue
		}
		got := callJSON{}
		if c := p.Calls[symbol]; c != nil {
			got = *c
		}
		rows = append(rows, check{what: who + symbol + " ok", expected: want.calls[symbol].ok, observed: got.OK + got.Recorded})
		if want.calls[symbol].failed+got.Failed > 0 {
			rows = append(rows, check{what: who + symbol + " failed", expected: want.calls[symbol].failed, observed: got.Failed})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.kernels)) {
		rows = append(rows, check{what: who + "launches of " + name, expected: want.kernels[name], observed: p.Launches[name]})
	}
	return rows
}

func sum(counts map[string]uint64) (total uint64) {
	for _, n := range counts {
		total += n
	}
	return total
}
