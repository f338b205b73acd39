package leak

import (
	"github.com/gputap/gputap/consumer/process"

	"cmp"
	"maps"
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
	reserved   map[processID]uint64 // of pools; without a class
	cards      map[cardID]int64     // unexplained bytes
}

type cardID struct{ hostname, uuid string }

// processID and its siblings are the labels of one series. Processes that share them, such as
// hosts of one name in two clusters, share the series.
type processID struct {
	labels
	pid string
}

type gauge struct {
	processID
	live    amount
	peak    uint64
	holders uint64
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
		reserved: map[processID]uint64{}, cards: map[cardID]int64{},
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
	s.addCards(t.hosts)
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
		s.gauge(id, gauge{live: r.live, peak: r.peak, holders: r.holders})
	}
	for i := range p.State.pools {
		if q := &p.State.pools[i]; q.reserved.at != 0 {
			s.reserve(p, base, q)
		}
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

func (s *snapshot) gauge(id processID, more gauge) {
	g := s.gauges[id]
	if g == nil {
		g = &gauge{processID: id}
		s.gauges[id] = g
	}
	g.live.bytes += more.live.bytes
	g.live.allocations += more.live.allocations
	g.peak += more.peak
	g.holders += more.holders
}

// reserve adds what one pool was told to have reserved.
func (s *snapshot) reserve(p *proc, id processID, q *pool) {
	id.gpu = ordinal(q.gpu)
	for i := range p.State.rows {
		if r := &p.State.rows[i]; r.gpu == q.gpu && r.uuid != "" {
			id.uuid = process.Label(r.uuid)
		}
	}
	if _, known := s.reserved[id]; !known && len(s.reserved) >= maxSeries-1 {
		id = processID{labels: labels{comm: other}}
	}
	s.reserved[id] += q.reserved.bytes
}

// addCards takes over what the GPUs of all hosts were last said to use, of the first in order of
// name when there are more than a family may show.
func (s *snapshot) addCards(hosts map[hostID]*host) {
	for id, h := range hosts {
		for uuid, c := range h.cards {
			if c.last.at != 0 {
				s.cards[cardID{process.Label(id.host), process.Label(uuid)}] = int64(c.last.used) - int64(c.last.all)
			}
		}
	}
	if len(s.cards) <= maxSeries {
		return
	}
	all := slices.SortedFunc(maps.Keys(s.cards), func(a, b cardID) int {
		return cmp.Or(cmp.Compare(a.hostname, b.hostname), cmp.Compare(a.uuid, b.uuid))
	})
	for _, id := range all[maxSeries:] {
		delete(s.cards, id)
	}
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
		s.gauge(processID{labels: labels{comm: other, class: g.class}}, *g)
	}
}
