package leak

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// apply applies the rules to one event.
func (t *Tracker) apply(m *schema.Memory) {
	p, ref := t.in.procs[m.Thread], &t.in.Calls[m.Call]
	switch ref.Op {
	case schema.OpExec:
		t.unfreed = Replaced
		t.endImage(p)
		t.unfreed = Unfreed
		s := &p.State
		s.teardown = teardown{}
		s.rows, s.devices, s.samples = nil, nil, nil // the new image numbers its GPUs independently
		return
	case schema.OpExit:
		t.judgeExit(p, m)
		t.exit(p)
		return
	}
	t.name(p, m)
	// graph events are memory nodes; the launch of the graph is counted by the launch fold
	if ref.Class != schema.ClassGraph {
		c := t.call(p, m)
		if ref.Op == schema.OpRecord && m.Result == 0 {
			c.Recorded++
			return
		}
		c.Count(m.Result)
	}
	if m.Result != 0 {
		r := &p.State.rows[t.row(p, m)]
		t.workloads.fail(t.workload(p, r), failure{process.Label(ref.Symbol), m.Result}, 1)
		return
	}
	if rule := rules[ref.Op]; rule != nil {
		rule(t, p, m)
	} else {
		t.counters.UnknownOps++
	}
}

// rules change the state after a successful call.
var rules = [schema.NumOps]func(*Tracker, *proc, *schema.Memory){
	schema.OpAlloc:          (*Tracker).alloc,
	schema.OpFree:           (*Tracker).free,
	schema.OpCreate:         (*Tracker).create,
	schema.OpRetain:         (*Tracker).retain,
	schema.OpRelease:        (*Tracker).release,
	schema.OpMap:            (*Tracker).mapRange,
	schema.OpUnmap:          (*Tracker).unmapRange,
	schema.OpOpen:           (*Tracker).open,
	schema.OpClose:          (*Tracker).close,
	schema.OpExport:         (*Tracker).export,
	schema.OpPoolCreate:     (*Tracker).poolCreate,
	schema.OpPoolDestroy:    (*Tracker).poolDestroy,
	schema.OpPoolInfo:       (*Tracker).poolInfo,
	schema.OpMemInfo:        (*Tracker).memInfo,
	schema.OpContextCreate:  (*Tracker).contextCreate,
	schema.OpContextRetain:  (*Tracker).contextRetain,
	schema.OpContextDestroy: knownContext((*Tracker).contextDestroy),
	schema.OpContextRelease: knownContext((*Tracker).dropUser),
	schema.OpContextReset:   knownContext((*Tracker).endContext),

	// These neither create memory nor end its life.
	schema.OpReserve: nothing, schema.OpUnreserve: nothing, schema.OpAccess: nothing, schema.OpMapArray: nothing,
	schema.OpBind: nothing, schema.OpUnbind: nothing, schema.OpPrefetch: nothing, schema.OpPoolTrim: nothing,
	schema.OpModuleLoad: nothing, schema.OpModuleUnload: nothing,
}

func nothing(*Tracker, *proc, *schema.Memory) {}

// name updates the name under which the process counts. The change waits until the process has no live memory, so that
// a workload frees only its own allocations. The name comes from the event's thread because one batch may hold events
// from before and after an exec.
func (t *Tracker) name(p *proc, m *schema.Memory) {
	if p.State.held > 0 {
		return
	}
	if comm := t.in.Processes[t.in.Threads[m.Thread].Process].Comm; p.State.comm != comm {
		t.detach(p)
		p.State.comm = comm
	}
}

// alloc makes the event's memory live.
func (t *Tracker) alloc(p *proc, m *schema.Memory) {
	e := t.insert(p, &p.State.addresses, m)
	if e.number == 0 {
		return
	}
	switch class := p.State.rows[e.row].class; {
	case endsWithContext(class):
		e.owner = t.context(p, m)
	case class == schema.ClassPool && m.Pool != 0:
		e.owner = t.pool(p, m.Pool, m.GPU)
	}
	t.addLive(p, e, m.Bytes)
}

// insert adds an entry with key m.Ptr to the slab and to an index. It returns none if m.Ptr is 0: the producer could
// not read the out-parameter and has counted the event as lost.
func (t *Tracker) insert(p *proc, x *index, m *schema.Memory) entry {
	if m.Ptr == 0 {
		return entry{}
	}
	if old := x.find(&t.slab, m.Ptr); old.number != 0 {
		t.count(p, reallocOverLive)
		t.drop(p, x, old)
	}
	p.Ended = false // a call proves that the process runs, even after an exit record
	row := t.row(p, m)
	e := t.slab.get()
	e.key, e.since, e.refs = m.Ptr, returned(m), 1
	e.thread, e.row, e.origin = t.in.slots[m.Thread], row, t.in.origins[m.Call]
	x.insert(&t.slab, e)
	return e
}

func returned(m *schema.Memory) schema.KTime { return m.Time + schema.KTime(m.Duration) }

// addLive adds live memory to every sum.
func (t *Tracker) addLive(p *proc, e entry, bytes uint64) {
	e.bytes = bytes
	p.State.boot.live++
	t.slab.link(p.State.boot.sizes.of(bytes), e)
	w := t.workload(p, &p.State.rows[e.row])
	w.allocated += bytes
	w.allocs++
	p.State.count(e.allocation, &t.threads.slots[e.thread], 1)
	p.State.grow(e.allocation, t.cfg.Window)
	if p.State.rows[e.row].device != noDevice {
		p.State.teardown.allocated(e.since)
	}
	t.move(p, e, Allocated)
}

// count adds an entry to the sums of its process, row, thread and owner; n is 1, or -1 to subtract it.
func (s *state) count(a *allocation, by *thread, n int) {
	r := &s.rows[a.row]
	by.live += uint32(n)
	switch {
	case a.kind == multicast:
		return
	case a.kind == opened:
		r.holders += uint64(n)
		s.holders += uint64(n)
		if a.owner != 0 {
			s.contexts[a.owner].live += uint32(n)
		}
		return
	case endsWithContext(r.class):
		s.contexts[a.owner].live += uint32(n)
	case a.owner != 0:
		s.pools[a.owner].live.change(a.bytes, n)
	}
	s.held += uint64(n)
	r.live.change(a.bytes, n)
	r.peak = max(r.peak, r.live.bytes)
	switch {
	case r.class.OnGPU():
		by.gpu.change(a.bytes, n)
		s.live.change(a.bytes, n)
		s.peak = max(s.peak, s.live.bytes)
		r.card.change(a.bytes, n)
	case r.class.OnHost():
		s.hostLive.change(a.bytes, n)
	}
}

// free ends the life at m.Ptr, whatever its class: cuMemFree also frees managed and pool memory and closes opened
// memory.
func (t *Tracker) free(p *proc, m *schema.Memory) {
	if m.Ptr == 0 {
		t.counters.NullFrees++
		return
	}
	x := &p.State.addresses
	e := x.find(&t.slab, m.Ptr)
	switch {
	case e.number == 0:
		t.count(p, unmatchedFree)
	case m.Time < e.since:
		t.count(p, lateFree)
	case e.refs.down():
		t.drop(p, x, e)
	}
}

// drop removes the key of an allocation, so that the driver may reuse it. The memory is removed too, unless mappings
// keep it.
func (t *Tracker) drop(p *proc, x *index, e entry) {
	x.remove(&t.slab, e)
	e.refs = 0
	if e.maps == 0 {
		t.remove(p, e)
	}
}

// remove takes an entry that the program freed out of every sum and reclaims it.
func (t *Tracker) remove(p *proc, e entry) {
	s := &p.State
	if e.kind == memory && s.rows[e.row].device != noDevice {
		s.teardown.free(e.allocation, t.in.event.Time)
	}
	t.removeFreed(p, e)
}

// removeFreed takes an entry out of every sum and reclaims it. Memory counts as freed.
func (t *Tracker) removeFreed(p *proc, e entry) {
	if e.kind == memory {
		w := t.workload(p, &p.State.rows[e.row])
		w.freed += e.bytes
		w.frees++
		t.move(p, e, Freed)
	}
	t.reclaim(p, e)
}

// removeUnfreed is remove at the end of an image: memory counts as unfreed.
func (t *Tracker) removeUnfreed(p *proc, e entry) {
	s := &p.State
	if e.kind == memory {
		r := &s.rows[e.row]
		t.workload(p, r).unfreed += e.bytes
		switch {
		case r.class.OnGPU():
			s.unfreed.add(e.bytes)
		case r.class.OnHost():
			s.hostUnfreed.add(e.bytes)
		}
		t.move(p, e, t.unfreed)
	}
	t.reclaim(p, e)
}

func (t *Tracker) reclaim(p *proc, e entry) {
	s := &p.State
	s.count(e.allocation, &t.threads.slots[e.thread], -1)
	switch e.kind {
	case memory:
		s.boot.live--
		t.slab.unlink(s.boot.sizes.of(e.bytes), e.allocation)
		s.shrink(e.allocation, t.in.event.Time)
	case opened:
		t.slab.unlink(&s.newestHolder, e.allocation)
	}
	t.slab.put(e)
}

// exit ends a process. A repeated exit record changes nothing.
func (t *Tracker) exit(p *proc) {
	if p.Ended {
		return
	}
	t.endImage(p)
	p.State.gap = inGap(p)
	p.Ended = true
}

// endImage turns live memory into unfreed memory. The process no longer counts under its labels.
func (t *Tracker) endImage(p *proc) {
	s := &p.State
	t.endVerdicts(p)
	s.unclosed += s.holders
	for _, g := range s.mappings {
		if t.slab.unmap(g.memory) {
			t.removeUnfreed(p, t.slab.entry(g.memory))
		}
	}
	for _, x := range []*index{&s.addresses, &s.handles} {
		x.sweep(&t.slab, func(e entry) bool {
			t.removeUnfreed(p, e)
			return true
		})
		*x = index{}
	}
	s.mappings, s.contexts, s.current, s.pools = nil, newContexts(), 0, nil
	t.detach(p)
}
