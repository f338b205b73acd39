package leak

import (
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

func (s *saver) host(m *host) {
	own := m.totals
	if own == s.otherQuality {
		own = nil
	}
	s.quality(own)
	s.bootsOf(m)
	s.workloadsOfHost(m.id)
	s.procs = map[*proc]uint64{}
	s.table.SaveHost(s.Writer, m.id, func(p *proc) {
		s.procs[p] = uint64(len(s.procs))
		s.state(p)
	})
	s.allocations(m)
}

func (l *loader) host(id snapshot.HostID) {
	if l.hosts[id] != nil {
		l.Fail("the host has been restored already")
		return
	}
	m := &host{id: id, boots: map[string]*boot{}}
	if own := l.quality(); own == nil {
		m.totals = l.otherQualities()
	} else if l.qualities < maxSeries-1 {
		l.qualities++
		m.totals = own
	} else { // the series are full
		m.totals = l.otherQualities()
		for i, n := range m.totals.all() {
			*n += *own.all()[i]
		}
	}
	l.hosts[id] = m
	l.bootsOf(m)
	l.workloadsOfHost(id)
	l.table.RestoreHost(l.Reader, id, func(p *proc) {
		l.procs = append(l.procs, p)
		l.state(p)
	})
	for _, c := range l.counters {
		c.rows--
	}
	if l.Err() == nil {
		l.allocations(m)
	}
}

// bootsOf writes the known boots by name, then the boots that only processes refer to, in process order.
func (s *saver) bootsOf(m *host) {
	var all []*boot
	for _, boot := range slices.Sorted(maps.Keys(m.boots)) {
		all = append(all, m.boots[boot])
	}
	s.boots = map[*boot]uint64{}
	for _, p := range s.table.Of(m.id) {
		if h := p.State.boot; m.boots[h.bootID] != h && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	s.Uint(uint64(len(all)))
	for i, h := range all {
		s.boots[h] = uint64(i)
		s.String(h.bootID)
		s.Bool(m.boots[h.bootID] == h)
		s.boot(h)
	}
}

func (l *loader) bootsOf(m *host) {
	for range l.Each(12) {
		h := &boot{host: m, bootID: l.String()}
		if l.Bool() {
			if m.boots[h.bootID] != nil {
				l.Fail("boot %q appears twice", h.bootID)
				return
			}
			m.boots[h.bootID] = h
		}
		l.boot(h)
		l.boots = append(l.boots, h)
	}
}

func (s *saver) boot(h *boot) {
	s.Int(h.offset)
	s.Uint(h.run)
	s.Uint(h.lost)
	s.Uint(uint64(h.last))
	s.Uint(uint64(h.gap))
	s.Bool(h.openGap)
	s.Bool(h.seen)
	s.Uint(uint64(len(h.cards)))
	for _, uuid := range slices.Sorted(maps.Keys(h.cards)) {
		s.String(uuid)
		s.sample(&h.cards[uuid].last)
	}
	x := &h.exports
	s.Uint(uint64(len(x.tokens)))
	for i := range x.tokens { // oldest first
		token := x.tokens[(x.oldest+i)%len(x.tokens)]
		s.Uint(token)
		s.Uint(uint64(x.owners[token]))
	}
}

func (l *loader) boot(h *boot) {
	h.offset, h.run, h.lost = l.Int(), l.Uint(), l.Uint()
	h.last, h.gap = schema.KTime(l.Uint()), schema.KTime(l.Uint())
	h.openGap, h.seen = l.Bool(), l.Bool()
	for range l.Each(9) {
		uuid := l.String()
		c := h.cardOf(uuid)
		if c == nil {
			l.Fail("GPU %q is invalid or above the limit, after %d GPUs", uuid, len(h.cards))
			return
		}
		c.last = l.sample()
	}
	for i := range l.Each(2) {
		if i == maxExports {
			l.Fail("more than %d tokens", maxExports)
			return
		}
		h.exports.add(l.Uint(), l.Uint32())
	}
}

func (s *saver) sample(a *sample) {
	s.Int(int64(a.gpu))
	s.String(a.uuid)
	s.Bool(a.inferred)
	for _, n := range []uint64{uint64(a.at), a.used, a.total, a.own, a.all} {
		s.Uint(n)
	}
}

func (l *loader) sample() sample {
	return sample{
		gpu: l.Int32(), uuid: l.String(), inferred: l.Bool(), at: schema.KTime(l.Uint()),
		used: l.Uint(), total: l.Uint(), own: l.Uint(), all: l.Uint(),
	}
}

// counts returns the sums of a process that do not follow from its live allocations.
func (s *state) counts() []*uint64 {
	return []*uint64{
		&s.unfreed.bytes, &s.unfreed.allocations, &s.hostUnfreed.bytes, &s.hostUnfreed.allocations,
		&s.withContext.bytes, &s.withContext.allocations, &s.peak, &s.unclosed, &s.exports,
	}
}

// state writes a process without its allocations and without the sums over them.
func (s *saver) state(p *proc) {
	a := &p.State
	s.Uint(s.boots[a.boot])
	s.Bool(s.pids[pid{a.boot, p.ID.PID}] == p)
	s.Bool(a.gap)
	s.String(a.comm)
	for _, n := range a.counts() {
		s.Uint(*n)
	}
	s.Uint(uint64(a.addresses.count))
	s.Uint(uint64(a.handles.count))
	s.Uint(uint64(len(a.rows)))
	for i := range a.rows {
		s.row(&a.rows[i])
	}
	s.contexts(a.contexts)
	s.pools(a.pools)
	s.Uint(uint64(len(a.samples)))
	for i := range a.samples {
		s.sample(&a.samples[i])
	}
	s.Uint(a.run)
}

func (l *loader) state(p *proc) {
	a := &p.State
	at := l.Below(len(l.boots))
	if l.Err() != nil {
		return
	}
	a.boot = l.boots[at]
	if l.Bool() {
		l.pids[pid{a.boot, p.ID.PID}] = p
	}
	a.gap, a.comm = l.Bool(), l.String()
	for _, n := range a.counts() {
		*n = l.Uint()
	}
	a.addresses, a.handles = l.index(), l.index()
	l.rows(p)
	l.contexts(a)
	l.pools(a)
	for i := range l.Each(8) {
		if i == maxSamples {
			l.Fail("more than %d samples", maxSamples)
			return
		}
		a.samples = append(a.samples, l.sample())
	}
	a.run = l.Uint()
}

// index reserves room for the announced number of entries. All announced entries together must fit into the rest of
// the section.
func (l *loader) index() index {
	n := l.Count(leastAllocation)
	if l.hinted += n; l.Room(leastAllocation) < l.hinted {
		l.Fail("%d allocations announced, more than the section can hold", l.hinted)
		return index{}
	}
	return index{heads: make([]uint32, n)}
}

func (s *saver) row(r *row) {
	s.Int(int64(r.gpu))
	s.String(r.class.String())
	s.Bool(r.inferred)
	s.String(r.uuid)
	s.Uint(r.peak)
	switch n := s.counters[r.counter]; {
	case r.counter == nil:
		s.Uint(0)
	case n == 0:
		s.Uint(1)
	default:
		s.Uint(n)
	}
}

func (l *loader) rows(p *proc) {
	a, onGPUs := &p.State, 0
	for range l.Each(6) {
		r := row{gpu: l.Int32(), class: process.RestoreClass(l.Reader), inferred: l.Bool(), uuid: l.String(),
			peak: l.Uint()}
		switch n := l.Below(2 + len(l.counters)); n {
		case 0:
		case 1:
			r.counter = l.workloads.other(r.class)
		default:
			r.counter = l.counters[n-2]
		}
		if r.counter != nil {
			r.counter.rows++
		}
		r.moved = l.workloads.moved(&r)
		if r.class.OnGPU() {
			r.card = a.boot.cards[r.uuid]
		}
		if r.gpu != noGPU {
			onGPUs++
		}
		a.rows = append(a.rows, r)
		if len(a.rows) > maxRows || onGPUs > maxRows-int(schema.NumClasses) {
			l.Fail("%d rows in process %d, more than allowed", len(a.rows), p.ID.PID)
			return
		}
	}
}

func (s *saver) contexts(all []cudaContext) {
	s.Uint(uint64(len(all)))
	for i := range all {
		c := &all[i]
		s.Uint(c.handle)
		s.Uint(uint64(c.since))
		s.Int(int64(c.gpu))
		s.Uint(uint64(c.users))
		s.Uint(uint64(c.of))
		for _, is := range []bool{c.primary, c.green, c.user, c.ended} {
			s.Bool(is)
		}
	}
}

func (l *loader) contexts(a *state) {
	n := l.Count(9)
	if n == 0 || n > maxContexts {
		l.Fail("%d contexts, want 1 to %d", n, maxContexts)
		return
	}
	for range n {
		a.contexts = append(a.contexts, cudaContext{
			handle: l.Uint(), since: schema.KTime(l.Uint()), gpu: l.Int32(), users: l.Uint32(), of: uint8(l.Below(n)),
			primary: l.Bool(), green: l.Bool(), user: l.Bool(), ended: l.Bool(),
		})
	}
}

func (s *saver) pools(all []pool) {
	s.Uint(uint64(len(all)))
	for i := 1; i < len(all); i++ {
		q := &all[i]
		s.Int(int64(q.gpu))
		s.Bool(q.imported)
		s.Bool(q.destroyed)
		for _, n := range []uint64{
			q.handle, uint64(q.since), q.limit, q.reserved.bytes, uint64(q.reserved.at), q.used.bytes,
			uint64(q.used.at),
		} {
			s.Uint(n)
		}
	}
}

func (l *loader) pools(a *state) {
	n := l.Below(maxPools + 1)
	if n == 0 {
		return
	}
	a.pools = make([]pool, 1)
	for range n - 1 {
		a.pools = append(a.pools, pool{
			gpu: l.Int32(), imported: l.Bool(), destroyed: l.Bool(), handle: l.Uint(), since: schema.KTime(l.Uint()),
			limit:    l.Uint(),
			reserved: reading{l.Uint(), schema.KTime(l.Uint())}, used: reading{l.Uint(), schema.KTime(l.Uint())},
		})
	}
}
