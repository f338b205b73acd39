package leak

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

// scrape is the data of one scrape, copied under the lock.
type scrape struct {
	gauges     map[processID]*gauge
	incomplete map[evidenceID]uint64
	workloads  map[labels]*workload
	failed     map[failedID]uint64
	unplaced   uint64
	qualities  map[string]quality
	reserved   map[processID]uint64 // by pools; the class is not set
	cards      map[cardID]unexplainedBytes
}

type cardID struct{ hostname, uuid string }

type unexplainedBytes struct {
	at    time.Time
	bytes int64
}

// processID, cardID, evidenceID and failedID are the labels of one series. Processes with equal labels share the
// series, for example on hosts of the same name in two clusters.
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

func (t *Tracker) scrape() scrape {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := scrape{
		gauges: map[processID]*gauge{}, incomplete: map[evidenceID]uint64{},
		failed: map[failedID]uint64{}, qualities: map[string]quality{},
		reserved: map[processID]uint64{}, cards: map[cardID]unexplainedBytes{},
		workloads: map[labels]*workload{},
	}
	for _, p := range t.table.All() {
		if !p.Ended && len(p.State.rows) > 0 {
			s.add(p)
		}
	}
	s.limitGauges()
	for _, w := range t.workloads.index {
		s.addWorkload(w)
	}
	for _, w := range t.workloads.others {
		if w != nil {
			s.addWorkload(w)
		}
	}
	s.unplaced = t.workloads.unplaced
	for _, m := range t.hosts {
		if m.totals != t.otherQuality {
			s.addQuality(process.Label(m.id.Host), m.totals)
		}
	}
	if t.otherQuality != nil {
		s.addQuality(other, t.otherQuality)
	}
	s.addCards(t.hosts)
	return s
}

// addWorkload adds a workload to the series of its labels.
func (s *scrape) addWorkload(w *workload) {
	sum := s.workloads[w.labels]
	if sum == nil {
		sum = &workload{workloadID: workloadID{labels: w.labels}}
		s.workloads[w.labels] = sum
	}
	sum.allocated += w.allocated
	sum.freed += w.freed
	sum.unfreed += w.unfreed
	sum.allocs += w.allocs
	sum.frees += w.frees
	for f, n := range w.failed {
		id := failedID{w.labels, f}
		id.class = 0 // this family has no class label
		s.failed[id] += n
	}
}

func (s *scrape) addQuality(hostname string, more *quality) {
	sum := s.qualities[hostname]
	sum.unmatchedFrees += more.unmatchedFrees
	sum.reallocOverLive += more.reallocOverLive
	sum.lateFrees += more.lateFrees
	sum.unknownContexts += more.unknownContexts
	s.qualities[hostname] = sum
}

func (s *scrape) add(p *proc) {
	base := processID{
		labels: labels{hostname: process.Label(p.ID.Host), container: process.Label(p.Container),
			comm: process.Label(p.Comm)},
		pid: pidText(p.ID.PID),
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
	var value uint64
	if evidence(p) != complete {
		value = 1
	}
	s.incomplete[id] = max(s.incomplete[id], value)
}

func (s *scrape) gauge(id processID, more gauge) {
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

// reserve adds the reserved bytes of one pool.
func (s *scrape) reserve(p *proc, id processID, q *pool) {
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

// addCards adds the latest sample of every GPU. If there are more GPUs than series, it keeps the first in order of
// host name and UUID.
func (s *scrape) addCards(hosts map[snapshot.HostID]*host) {
	for _, m := range hosts {
		for _, h := range m.boots {
			for uuid, c := range h.cards {
				s.addCard(cardID{process.Label(m.id.Host), process.Label(uuid)}, h, &c.last)
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

// addCard keeps the latest sample of a GPU; of samples of the same time, the largest.
func (s *scrape) addCard(id cardID, h *boot, latest *sample) {
	if latest.at == 0 {
		return
	}
	now := unexplainedBytes{h.wall(latest.at), int64(latest.used) - int64(latest.all)}
	before, known := s.cards[id]
	if !known || cmp.Or(now.at.Compare(before.at), cmp.Compare(now.bytes, before.bytes)) > 0 {
		s.cards[id] = now
	}
}

// limitGauges keeps the series with the most live bytes and sums the others.
func (s *scrape) limitGauges() {
	if len(s.gauges) <= maxSeries {
		return
	}
	all := make([]*gauge, 0, len(s.gauges))
	for _, g := range s.gauges {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *gauge) int {
		return cmp.Or(cmp.Compare(b.live.bytes, a.live.bytes), cmp.Compare(a.hostname, b.hostname),
			cmp.Compare(a.pid, b.pid), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.class, b.class),
			cmp.Compare(a.uuid, b.uuid), cmp.Compare(a.container, b.container), cmp.Compare(a.comm, b.comm))
	})
	for _, g := range all[maxSeries-numOther:] {
		delete(s.gauges, g.processID)
		s.gauge(processID{labels: labels{comm: other, class: g.class}}, *g)
	}
}
