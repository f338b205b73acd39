package leak

import (
	"github.com/gputap/gputap/consumer/process"

	"cmp"
	"slices"
)

// snapshot is what one scrape shows, copied under the lock.
type snapshot struct {
	gauges     map[processID]*gauge
	incomplete map[evidenceID]uint64
	workloads  []workload
	failed     map[failedID]uint64
	unplaced   uint64
	qualities  map[string]quality
}

// processID and its siblings are the labels of one series. Processes that share them, such as
// hosts of one name in two clusters, share the series.
type processID struct {
	labels
	pid string
}

type gauge struct {
	processID
	live amount
	peak uint64
}

type evidenceID struct{ hostname, container, comm, pid string }

type failedID struct {
	labels
	failure
}

func (t *Tracker) snapshot() snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := snapshot{
		gauges: map[processID]*gauge{}, incomplete: map[evidenceID]uint64{},
		failed: map[failedID]uint64{}, qualities: map[string]quality{},
	}
	for _, p := range t.table.All() {
		if !p.Ended && len(p.State.rows) > 0 {
			s.add(p)
		}
	}
	s.fold()
	for _, w := range t.workloads.index {
		s.workloads = append(s.workloads, *w)
		for f, n := range w.failed {
			id := failedID{w.labels, f}
			id.class = 0 // not among the labels of this family
			s.failed[id] += n
		}
	}
	s.unplaced = t.workloads.unplaced
	for hostname, q := range t.qualities {
		s.qualities[hostname] = *q
	}
	return s
}

func (s *snapshot) add(p *proc) {
	base := processID{
		labels: labels{hostname: process.Label(p.ID.Host), container: process.Label(p.Container), comm: process.Label(p.Comm)},
		pid:    pidText(p.ID.PID),
	}
	for i := range p.State.rows {
		r := &p.State.rows[i]
		id := base
		id.gpu, id.uuid, id.class = ordinal(r.gpu), process.Label(r.uuid), r.class
		s.gauge(id, r.live, r.peak)
	}
	id := evidenceID{base.hostname, base.container, base.comm, base.pid}
	if len(s.incomplete) >= maxSeries-1 {
		id = evidenceID{comm: other}
	}
	var is uint64
	if evidence(p) != complete {
		is = 1
	}
	s.incomplete[id] = max(s.incomplete[id], is)
}

func (s *snapshot) gauge(id processID, live amount, peak uint64) {
	g := s.gauges[id]
	if g == nil {
		g = &gauge{processID: id}
		s.gauges[id] = g
	}
	g.live.bytes += live.bytes
	g.live.allocations += live.allocations
	g.peak += peak
}

// fold keeps the series that hold most and adds the rest up.
func (s *snapshot) fold() {
	if len(s.gauges) <= maxSeries {
		return
	}
	all := make([]*gauge, 0, len(s.gauges))
	for _, g := range s.gauges {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *gauge) int {
		return cmp.Or(cmp.Compare(b.live.bytes, a.live.bytes), cmp.Compare(a.hostname, b.hostname),
			cmp.Compare(a.pid, b.pid), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.class, b.class))
	})
	for _, g := range all[maxSeries-numOther:] {
		delete(s.gauges, g.processID)
		s.gauge(processID{labels: labels{comm: other, class: g.class}}, g.live, g.peak)
	}
}
