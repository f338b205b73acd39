package leak

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (t *Tracker) Snapshot(yield func(snapshot.Section) error) error {
	workloads := map[snapshot.HostID][]*workload{}
	for _, w := range t.workloads.index {
		workloads[w.HostID] = append(workloads[w.HostID], w)
	}
	return t.form(workloads).Save(&t.out, slices.Collect(maps.Keys(t.hosts)), yield)
}

// Redact makes Snapshot write pseudonyms for private strings. The names of the sections stay.
func (t *Tracker) Redact(pseudonym func(schema.Private, string) string) { t.out.Pseudonym = pseudonym }

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (t *Tracker) Restore(section snapshot.Section) error { return t.form(nil).Restore(section) }

func (t *Tracker) form(workloads map[snapshot.HostID][]*workload) snapshot.Form {
	return snapshot.Form{
		Fold: "leak", Version: 1, Lock: &t.mu,
		Shard: func(c *snapshot.Codec) { (&coder{Tracker: t, Codec: c}).shard() },
		Host: func(c *snapshot.Codec, id snapshot.HostID) {
			(&coder{
				Tracker: t, Codec: c, found: map[uint32]int{},
				slots:   refs[uint32]{dense: func(i uint32) int { return int(i) }},
				origins: refs[uint8]{dense: func(i uint8) int { return int(i) }},
			}).host(id, workloads[id])
		},
	}
}

// coder passes over one section.
type coder struct {
	*Tracker
	*snapshot.Codec

	boots    refs[*boot]
	counters refs[*workload]
	procs    refs[*proc]
	slots    refs[uint32] // of threads
	origins  refs[uint8]
	mapped   refs[uint32] // allocations with mappings

	width  schema.KTime   // of the windows in the snapshot
	last   allocation     // the next allocation is saved as a difference to it
	found  map[uint32]int // mappings read so far of each allocation
	hinted int            // sum of the announced index sizes
}

func (c *coder) shard() {
	c.table.CodeShard(c.Codec)
	c.book.CodeShard(c.Codec)
	q, n := &c.quality, &c.Tracker.counters
	snapshot.Uint(c.Codec, &q[unmatchedFree], &q[reallocOverLive], &q[lateFree], &n.NullFrees, &n.UnknownHandles,
		&q[unknownContext], &n.UnknownOps)
	calls := slices.SortedFunc(maps.Keys(c.Tracker.origins.index), func(a, b schema.CallRef) int {
		return cmp.Or(cmp.Compare(a.Symbol, b.Symbol), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Direction, b.Direction))
	})
	snapshot.List(c.Codec, &calls, 4, func(ref *schema.CallRef) {
		process.CodeRef(c.Codec, ref)
		c.Tracker.origins.number(*ref)
	})
	snapshot.Uint(c.Codec, &c.workloads.releases, &c.workloads.unplaced)
	c.others()
	c.totals.CodeOthers(c.Codec, 4, func(*process.Workload) {})
}

// others passes over the workloads of comm="other", each behind a true.
func (c *coder) others() {
	for class, w := range c.workloads.others {
		if w != nil && !c.Reading() {
			c.Writer.Bool(true)
			c.other(schema.MemClass(class))
		}
	}
	more := false
	for c.Bool(&more); more; c.Bool(&more) {
		c.other(schema.ClassNone)
	}
}

func (c *coder) other(class schema.MemClass) {
	process.CodeWord(c.Codec, &class, schema.ParseMemClass)
	c.workload(c.workloads.other(class))
}

// workload passes over the counters of a workload. Its number of rows follows from the rows. Restored counters are
// added to w, which may be the workload of comm="other".
func (c *coder) workload(w *workload) {
	saved := workload{}
	if !c.Reading() {
		saved = *w
	}
	snapshot.Uint(c.Codec, &saved.allocated, &saved.freed, &saved.unfreed, &saved.allocs, &saved.frees,
		&saved.released)
	snapshot.Map(c.Codec, &saved.failed, 3, failure.compare, func(f *failure, calls *uint64) {
		process.CodeLabels(c.Codec, &f.symbol)
		snapshot.Uint(c.Codec, &f.result)
		snapshot.Uint(c.Codec, calls)
	})
	if !c.Reading() {
		return
	}
	w.add(&saved)
	w.released = max(w.released, saved.released)
	c.workloads.releases = max(c.workloads.releases, w.released)
	for _, f := range slices.SortedFunc(maps.Keys(saved.failed), failure.compare) {
		c.workloads.fail(w, f, saved.failed[f])
	}
}

func (a failure) compare(b failure) int {
	return cmp.Or(cmp.Compare(a.symbol, b.symbol), cmp.Compare(a.result, b.result))
}

// host passes over one host. If restored hosts have already filled the series, some of its workloads count as other.
// None is evicted before the rows of the host are read.
func (c *coder) host(id snapshot.HostID, workloads []*workload) {
	m := c.hosts[id]
	if c.Reading() {
		if m != nil {
			c.Fail("the host has been restored already")
			return
		}
		m = &host{id: id, boots: map[string]*boot{}}
		c.hosts[id] = m
	}
	c.width = schema.KTime(c.cfg.Window)
	snapshot.Uint(c.Codec, &c.width)
	c.totals.CodeHost(c.Codec, id, 4, func(w *process.Workload) { w.HostID = id })
	m.totals = c.totals.Find(process.Workload{HostID: id})
	c.book.CodeHost(c.Codec, id)
	c.bootsOf(m)
	slices.SortFunc(workloads, func(a, b *workload) int { return a.compare(&b.workloadID) })
	snapshot.List(c.Codec, &workloads, process.MinWorkload+8, func(w **workload) {
		k := workloadID{}
		if !c.Reading() {
			k = (*w).workloadID
		}
		k.Code(c.Codec, id)
		process.CodeWord(c.Codec, &k.class, schema.ParseMemClass)
		if c.Reading() {
			if c.workloads.index[k] != nil {
				c.Fail("a workload appears twice")
			}
			*w = c.workloads.acquire(k)
		}
		c.workload(*w)
		c.counters.add(*w)
	})
	c.table.CodeHost(c.Codec, id, func(p *proc) {
		c.procs.add(p)
		c.process(p)
	})
	if c.Reading() {
		for _, w := range workloads {
			w.rows--
		}
	}
	if !c.Failed() {
		c.allocations(m)
	}
	if c.width != schema.KTime(c.cfg.Window) { // last: the length of a saved series depends on the windows
		for _, h := range c.boots.all {
			h.windows.Reset()
		}
	}
}

// bootsOf passes over the known boots by name, then the boots that only processes refer to, in process order.
func (c *coder) bootsOf(m *host) {
	var all []*boot
	for _, boot := range slices.Sorted(maps.Keys(m.boots)) {
		all = append(all, m.boots[boot])
	}
	for _, p := range c.table.Of(m.id) {
		if h := p.State.boot; m.boots[h.bootID] != h && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	snapshot.List(c.Codec, &all, 12, func(p **boot) {
		if c.Reading() {
			*p = &boot{host: m}
		}
		h := *p
		c.String(&h.bootID)
		known := m.boots[h.bootID] == h
		if c.Bool(&known); known && c.Reading() {
			if m.boots[h.bootID] != nil {
				c.Fail("boot %q appears twice", h.bootID)
			}
			m.boots[h.bootID] = h
		}
		c.boot(h)
		c.boots.add(h)
	})
}

func (c *coder) boot(h *boot) {
	snapshot.Int(c.Codec, &h.offset)
	snapshot.Uint(c.Codec, &h.run, &h.lost)
	snapshot.Uint(c.Codec, &h.last, &h.gap)
	c.Bool(&h.openGap, &h.seen)
	h.windows.Code(c.Codec)
	snapshot.Map(c.Codec, &h.cards, 9, strings.Compare, func(uuid *string, p **card) {
		if c.Reading() {
			*p = &card{}
		}
		c.String(uuid)
		snapshot.Uint(c.Codec, &(*p).bytes)
		c.sample(&(*p).last)
	})
	x, tokens := &h.exports, slices.Clone(h.exports.tokens)
	snapshot.List(c.Codec, &tokens, 2, func(token *uint64) {
		snapshot.Uint(c.Codec, token)
		owner := x.owners[*token]
		snapshot.Uint(c.Codec, &owner)
		if c.Reading() {
			x.add(*token, owner)
		}
	})
	if h.cards[""] != nil || len(h.cards) > maxCards || len(tokens) > maxExports {
		c.Fail("an unknown GPU, or %d GPUs and %d tokens, at most %d and %d", len(h.cards), len(tokens), maxCards,
			maxExports)
	}
}

// process passes over a process without its allocations and without the sums over them.
func (c *coder) process(p *proc) {
	s := &p.State
	if c.boots.code(c.Codec, &s.boot); c.Failed() {
		return
	}
	id := pid{s.boot, p.ID.PID}
	latest := c.pids[id] == p
	if c.Bool(&latest); latest {
		c.pids[id] = p
	}
	c.Bool(&s.gap)
	c.String(&s.comm)
	snapshot.Uint(c.Codec, &s.unfreed.bytes, &s.unfreed.allocations, &s.hostUnfreed.bytes, &s.hostUnfreed.allocations,
		&s.withContext.bytes, &s.withContext.allocations, &s.peak, &s.unclosed, &s.exports)
	c.index(&s.addresses)
	c.index(&s.handles)
	snapshot.List(c.Codec, &s.devices, 16, func(d *device) { c.device(s, d) })
	snapshot.List(c.Codec, &s.rows, 6, func(r *row) { c.row(s, r) })
	snapshot.List(c.Codec, &s.contexts, 9, c.context)
	c.pools(s)
	snapshot.List(c.Codec, &s.samples, 8, c.sample)
	snapshot.Uint(c.Codec, &s.run)
	snapshot.Uint(c.Codec, &s.unmatched, &s.teardown.began)
	snapshot.Uint(c.Codec, &s.teardown.freed.bytes, &s.teardown.freed.allocations)
	if c.Reading() {
		c.checkProcess(s)
	}
}

func (c *coder) checkProcess(s *state) {
	onGPUs := 0
	for i := range s.rows {
		if s.rows[i].gpu != noGPU {
			onGPUs++
		}
	}
	if len(s.rows) > maxRows || onGPUs > maxRows-int(schema.NumClasses) || len(s.samples) > maxSamples ||
		len(s.devices) > maxDevices || len(s.contexts) == 0 || len(s.contexts) > maxPlaces {
		c.Fail("%d rows, %d of them on GPUs, %d samples or %d contexts are not allowed", len(s.rows), onGPUs,
			len(s.samples), len(s.contexts))
	}
	for i := range s.contexts {
		if int(s.contexts[i].of) >= len(s.contexts) {
			c.Fail("a context refers to a context that does not exist")
		}
	}
}

// index passes over the number of entries, and reserves room for them. All announced entries together must fit into
// the rest of the section.
func (c *coder) index(x *index) {
	if !c.Reading() {
		c.Writer.Uint(uint64(x.count))
		return
	}
	n := c.Reader.Count(leastAllocation)
	if c.hinted += n; c.Reader.Room(leastAllocation) < c.hinted {
		c.Fail("%d allocations announced, more than the section can hold", c.hinted)
		return
	}
	x.heads = make([]uint32, n)
}

func (c *coder) row(s *state, r *row) {
	snapshot.Int(c.Codec, &r.gpu)
	process.CodeWord(c.Codec, &r.class, schema.ParseMemClass)
	c.Bool(&r.inferred)
	c.String(&r.uuid)
	snapshot.Uint(c.Codec, &r.peak)
	other := c.counters.codeOptional(c.Codec, &r.counter)
	if !c.Reading() {
		return
	}
	if other {
		r.counter = c.workloads.other(r.class)
	}
	if r.counter != nil {
		r.counter.rows++
	}
	r.moved = c.workloads.moved(r)
	r.device = s.device(r.gpu, r.class)
	if r.class.OnGPU() {
		r.card = s.boot.cards[r.uuid]
	}
}

func (c *coder) context(x *cudaContext) {
	snapshot.Uint(c.Codec, &x.handle)
	snapshot.Uint(c.Codec, &x.since)
	snapshot.Int(c.Codec, &x.gpu)
	snapshot.Uint(c.Codec, &x.users)
	snapshot.Uint(c.Codec, &x.of)
	c.Bool(&x.primary, &x.green, &x.user, &x.ended)
}

// pools passes over the pools. The first one stands for no pool and has no values.
func (c *coder) pools(s *state) {
	n := len(s.pools)
	if c.Below(&n, maxPlaces+1); c.Reading() && n > 0 {
		s.pools = make([]pool, n)
	}
	for i := 1; i < n; i++ {
		q := &s.pools[i]
		snapshot.Int(c.Codec, &q.gpu)
		c.Bool(&q.imported, &q.destroyed)
		snapshot.Uint(c.Codec, &q.handle)
		snapshot.Uint(c.Codec, &q.since)
		snapshot.Uint(c.Codec, &q.limit)
		for _, r := range []*reading{&q.reserved, &q.used} {
			snapshot.Uint(c.Codec, &r.bytes)
			snapshot.Uint(c.Codec, &r.at)
		}
	}
}
