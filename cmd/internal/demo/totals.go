package demo

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ianlancetaylor/demangle"

	"github.com/gputap/gputap/cmd/internal/pipeline"
)

// totals compares all figures after the end: for each process its calls by result, its unfreed memory and its launches
// by kernel. It also checks that no event was lost.
func (s *stage) totals(now *pipeline.Snapshot) ([]Check, error) {
	images, err := readTruth(s.truths)
	if err != nil {
		return nil, err
	}
	var order []*pipeline.Process
	byProcess := map[*pipeline.Process][]truth{}
	var rows []Check
	for i := range images {
		p := processOf(now, &images[i])
		if p == nil {
			rows = append(rows, Check{What: fmt.Sprintf("process %d seen", images[i].pid), Expected: true,
				Observed: false})
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
	return append(rows, Check{What: "exit: events lost", Expected: uint64(0), Observed: sum(now.Lost)}), nil
}

func processTotals(who string, p *pipeline.Process, images []truth) []Check {
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
			want.calls[symbol] = truthCall{all.ok + c.ok, all.failed + c.failed, all.bytes + c.bytes,
				all.busyNS + c.busyNS}
		}
		for name, n := range t.kernels {
			want.kernels[demangle.Filter(name)] += n
		}
	}
	rows := []Check{
		{What: who + "ended", Expected: true, Observed: p.Ended},
		{What: who + "live bytes", Expected: uint64(0), Observed: p.LiveBytes},
		{What: who + "unfreed at exit, bytes", Expected: want.liveBytes, Observed: p.UnfreedBytes},
		{What: who + "unfreed at exit, allocations", Expected: want.liveAllocations, Observed: p.UnfreedAllocations},
	}
	if want.contextAllocations+p.ContextAllocations > 0 {
		rows = append(rows, Check{What: who + "freed with contexts, bytes", Expected: want.contextBytes,
			Observed: p.ContextBytes},
			Check{What: who + "freed with contexts, allocations", Expected: want.contextAllocations,
				Observed: p.ContextAllocations})
	}
	if want.holders+p.Holders.UnclosedAtExit > 0 {
		rows = append(rows, Check{What: who + "holders not closed", Expected: want.holders,
			Observed: p.Holders.UnclosedAtExit})
	}
	for _, symbol := range slices.Sorted(maps.Keys(want.calls)) {
		if !probed(symbol) {
			continue
		}
		got := pipeline.Call{}
		if c := p.Calls[symbol]; c != nil {
			got = *c
		}
		rows = append(rows, Check{What: who + symbol + " ok", Expected: want.calls[symbol].ok, Observed: got.OK +
			got.Recorded})
		if want.calls[symbol].failed+got.Failed > 0 {
			rows = append(rows, Check{What: who + symbol + " failed", Expected: want.calls[symbol].failed,
				Observed: got.Failed})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.kernels)) {
		rows = append(rows, Check{What: who + "launches of " + name, Expected: want.kernels[name],
			Observed: p.Launches[name]})
	}
	return rows
}

func sum(counts map[string]uint64) (total uint64) {
	for _, n := range counts {
		total += n
	}
	return total
}
