package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/leak"
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

// AllocationOf returns the allocation as reports show it.
func AllocationOf(a *leak.Allocation) Allocation {
	return Allocation{hex(a.Ptr), a.Bytes, a.Class.String(), cmp.Or(a.GPU, Unknown), a.TID, a.ThreadComm, a.At,
		a.Symbol}
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
