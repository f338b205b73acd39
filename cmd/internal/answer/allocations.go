package answer

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// Allocation is one live allocation of GPU memory, or of pinned or registered host memory.
type Allocation struct {
	Address string    `json:"address"` // or handle
	Bytes   uint64    `json:"bytes"`
	Class   string    `json:"class"`
	GPU     string    `json:"gpu"` // UUID, or "unknown"
	TID     uint32    `json:"tid"`
	Thread  string    `json:"thread"`
	Since   time.Time `json:"since"`
	Symbol  string    `json:"symbol"` // the driver function that allocated it
}

// allocationRow is one allocation of a process.
type allocationRow struct {
	ID schema.ProcessID
	Allocation
}

// maxAsked is of how many processes one shard lists the allocations. A PID on a host names few.
const maxAsked = 16

// allocationRows are the largest allocations of each process that the question selects, at most its limit of each.
func allocationRows(t *leak.Tracker, q *query.Question) (iter.Seq[any], int) {
	var rows []allocationRow
	selected := selected(t.Report().Processes, q, func(p *leak.Process) *process.Info { return &p.Info })
	for i := range selected[:min(maxAsked, len(selected))] {
		for _, a := range t.LargestOf(selected[i].ID, q.Limit) {
			gpu := a.GPU
			if gpu == "" {
				gpu = unknown
			}
			rows = append(rows, allocationRow{a.ID, Allocation{hex(a.Ptr), a.Bytes, a.Class.String(), gpu, a.TID,
				a.ThreadComm, a.At, a.Symbol}})
		}
	}
	return each(rows), len(rows)
}

// Describe returns the processes that a filter selects with all figures, each with its largest allocations.
func (f *Fleet) Describe(ctx context.Context, filter query.Filter, allocations int) (*List[*Process], error) {
	list, answer, err := f.processes(ctx, query.Question{Filter: filter, Detail: true},
		asked{"leak", query.Question{What: whatAllocations, Filter: filter, Limit: allocations}})
	if err != nil {
		return nil, err
	}
	found, err := query.Rows[allocationRow](answer)
	if err != nil {
		return nil, err
	}
	of := map[schema.ProcessID]*Process{}
	for _, p := range list.Items {
		of[p.id] = p
	}
	for i := range found {
		if p := of[found[i].ID]; p != nil {
			p.Largest = append(p.Largest, found[i].Allocation)
		}
	}
	return list, nil
}

// writeLargest prints the largest allocations.
func writeLargest(out io.Writer, p *Process, now time.Time) {
	if len(p.Largest) == 0 {
		return
	}
	fmt.Fprintf(out, "  largest allocations: %d of %d\n", len(p.Largest),
		p.LiveAllocations+p.HostMemory.LiveAllocations)
	for _, like := range equal(p.Largest) {
		a, amount, age := like[0], app.Bytes(like[0].Bytes), "%s old"
		if len(like) > 1 {
			amount, age = fmt.Sprintf("%d × %s", len(like), amount), "oldest %s"
		}
		fmt.Fprintf(out, "    %-16s %16s  %-10s %-12.12s  thread %d %s, "+age+"\n", a.Address, amount, a.Class, a.GPU,
			a.TID, a.Thread, now.Sub(a.Since).Round(time.Second))
	}
}

// equal puts allocations of one size, class, GPU and thread together, the oldest first.
func equal(list []Allocation) (groups [][]Allocation) {
	type key struct {
		bytes              uint64
		class, gpu, thread string
		tid                uint32
	}
	at := map[key]int{}
	for _, a := range list {
		k := key{a.Bytes, a.Class, a.GPU, a.Thread, a.TID}
		i, known := at[k]
		if !known {
			i, at[k] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], a)
	}
	for _, like := range groups {
		slices.SortStableFunc(like, func(a, b Allocation) int { return a.Since.Compare(b.Since) })
	}
	return groups
}
