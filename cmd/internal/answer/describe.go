package answer

import (
	"context"
	"iter"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// maxAsked is of how many processes one shard lists the allocations. A PID on a host names few.
const maxAsked = 16

// allocationRow is one allocation of a process.
type allocationRow struct {
	ID schema.ProcessID
	report.Allocation
}

// allocationRows are the largest allocations of each process that the question selects, at most its limit of each.
func allocationRows(t *leak.Tracker, q *query.Question) (iter.Seq[any], int) {
	var rows []allocationRow
	selected := selected(t.Report().Processes, q, func(p *leak.Process) *process.Info { return &p.Info })
	for i := range selected[:min(maxAsked, len(selected))] {
		for _, a := range t.LargestOf(selected[i].ID, q.Limit) {
			rows = append(rows, allocationRow{a.ID, report.AllocationOf(&a)})
		}
	}
	return each(rows), len(rows)
}

// Describe returns the processes that a filter selects with all figures, each with its largest allocations.
func (f *Fleet) Describe(ctx context.Context, filter query.Filter, allocations int) (*List[*report.Process], error) {
	list, answer, err := f.processes(ctx, query.Question{Filter: filter, Detail: true},
		asked{"leak", query.Question{What: whatAllocations, Filter: filter, Limit: allocations}})
	if err != nil {
		return nil, err
	}
	found, err := query.Rows[allocationRow](answer)
	if err != nil {
		return nil, err
	}
	of := map[schema.ProcessID]*report.Process{}
	for _, p := range list.Items {
		of[p.ID()] = p
	}
	for i := range found {
		if p := of[found[i].ID]; p != nil {
			p.Largest = append(p.Largest, found[i].Allocation)
		}
	}
	return list, nil
}
