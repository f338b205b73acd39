package leak

import (
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// ownScan is how many allocations LargestOf may visit.
const ownScan = 1 << 16

// LargestOf returns the n largest live allocations of one process, at most 1,000, in the order of Top. It visits at
// most 65,536 allocations of the host, from the largest size class on: smaller ones of a process whose host has more
// are not seen.
func (t *Tracker) LargestOf(id schema.ProcessID, n int) []Allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.hosts[snapshot.HostID{Cluster: id.Cluster, Host: id.Host}]
	if m == nil {
		return nil
	}
	n = max(0, min(n, maxTop))
	var found []candidate
	visited := 0
	for size := len(m.sizes) - 1; size >= 0 && len(found) < n; size-- {
		for i := m.sizes[size]; i != 0 && visited < ownScan; visited++ {
			a := t.slab.at(i)
			if p := t.threads.slots[a.thread].process; p.ID == id {
				found = append(found, candidate{a, p.State.boot.wall(a.since)})
			}
			i = a.next
		}
	}
	top := make([]Allocation, 0, min(n, len(found)))
	for _, c := range first(n, found) {
		top = append(top, t.describe(c))
	}
	return top
}
