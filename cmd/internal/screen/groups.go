package screen

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
)

// groupKey is the properties that all allocations of a group share.
type groupKey struct {
	tid   uint32
	class string
	gpu   string
	size  uint64 // the largest power of two that is not above their sizes
}

// group is allocations of one thread in one class, on one GPU, and of one size class.
type group struct {
	groupKey
	thread string
	count  uint64
	bytes  uint64
	oldest time.Time
	list   []report.Allocation // empty if the verdict alone names the group
	state  string              // of the verdict that names the group
}

func sizeClass(bytes uint64) uint64 {
	if bytes == 0 {
		return 0
	}
	return 1 << (bits.Len64(bytes) - 1)
}

// groups groups the largest allocations of a process, those with the most bytes first. It adds the groups of which the
// verdicts say that they grow.
func groups(p *report.Process, now time.Time) []*group {
	var all []*group
	at := map[groupKey]*group{}
	find := func(k groupKey, thread string) *group {
		if at[k] == nil {
			at[k] = &group{groupKey: k, thread: thread}
			all = append(all, at[k])
		}
		return at[k]
	}
	for _, a := range p.Largest {
		g := find(groupKey{a.TID, a.Class, a.GPU, sizeClass(a.Bytes)}, a.Thread)
		if g.count == 0 || a.Since.Before(g.oldest) {
			g.oldest = a.Since
		}
		g.count++
		g.bytes += a.Bytes
		g.list = append(g.list, a)
	}
	for i := range p.Verdicts {
		v := &p.Verdicts[i]
		if !v.Grows() {
			continue
		}
		for _, q := range v.Groups {
			g := find(groupKey{q.TID, q.Class, v.GPU, q.SizeClass}, q.Thread)
			g.state = v.State
			if g.count == 0 {
				g.count, g.bytes = q.Allocations, q.Bytes
				g.oldest = now.Add(-time.Duration(q.OldestSeconds * float64(time.Second)))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.tid, b.tid))
	})
	return all
}

func (k groupKey) String() string { return fmt.Sprintf("%d %s %s %d", k.tid, k.class, k.gpu, k.size) }

var groupColumns = []column{
	{title: "STATE", width: 7}, {title: "THREAD", width: 15, room: 17},
	{title: "GPU", width: 12, room: 28, clip: true}, {title: "CLASS", width: 7},
	{title: "FROM", width: 8, right: true}, {title: "ALLOCS", width: 6, right: true},
	{title: "BYTES", width: 11, right: true}, {title: "OLDEST", width: 6, right: true, rank: 1},
}

func groupRow(g *group) row {
	cells := []string{g.state, threadText(g.tid, g.thread), g.gpu, g.class, powerText(g.size), fmt.Sprint(g.count),
		app.Bytes(g.bytes)}
	r := row{key: g.String(), search: fmt.Sprint(cells), cells: func(now time.Time) []string {
		return append(slices.Clone(cells), app.Age(now.Sub(g.oldest)))
	}}
	r.style = styleOf(g.state)
	return r
}

func threadText(tid uint32, name string) string { return fmt.Sprintf("%d %s", tid, name) }

var allocationColumns = []column{
	{title: "ADDRESS", width: 18}, {title: "BYTES", width: 11, right: true}, {title: "AGE", width: 4, right: true},
	{title: "CLASS", width: 8}, {title: "CALL", width: 32},
	{title: "THREAD", width: 18, room: 14, rank: 1}, {title: "GPU", width: 12, room: 28, clip: true, rank: 2},
}

func allocationRow(a *report.Allocation) row {
	return row{key: a.Address, search: a.Address + " " + a.Symbol, cells: func(now time.Time) []string {
		return []string{a.Address, app.Bytes(a.Bytes), app.Age(now.Sub(a.Since)), a.Class, a.Symbol,
			threadText(a.TID, a.Thread), a.GPU}
	}}
}

// text names a group for people.
func (k groupKey) text() string {
	return fmt.Sprintf("thread %d, %s, %.12s, from %s to below %s", k.tid, k.class, k.gpu, powerText(k.size),
		powerText(2*k.size))
}

// powerText formats a power of two.
func powerText(bytes uint64) string { return strings.Replace(app.Bytes(bytes), ".00", "", 1) }
