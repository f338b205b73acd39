package leak

import "github.com/gputap/gputap/schema"

// apply applies the rules to one event.
func (t *Tracker) apply(m *schema.Memory) {
	p, ref := t.in.procs[m.Thread], &t.in.Calls[m.Call]
	switch ref.Op {
	case schema.OpExec:
		t.exec(p)
		return
	case schema.OpExit:
		t.exit(p)
		return
	}
	t.name(p, m)
	// graph events are memory nodes; the launch of the graph is counted by the launch fold
	if ref.Class != schema.ClassGraph {
		c := t.call(p, m)
		if ref.Op == schema.OpRecord && m.Result == 0 {
			c.Record(1)
			return
		}
		c.Count(m.Result)
	}
	if m.Result != 0 {
		r := &p.State.rows[t.row(p, m)]
		t.workloads.fail(t.workload(p, r), ref.Symbol, m.Result)
		return
	}
	switch ref.Op {
	case schema.OpAlloc:
		t.alloc(p, m)
	case schema.OpFree:
		t.free(p, m)
	default:
		t.rare(p, ref, m)
	}
}

// rare applies the rules of every call except alloc and free.
func (t *Tracker) rare(p *proc, ref *schema.CallRef, m *schema.Memory) {
	switch ref.Op {
	case schema.OpCreate:
		t.create(p, m)
	case schema.OpRetain:
		t.retain(p, m)
	case schema.OpRelease:
		t.release(p, m)
	case schema.OpMap:
		t.mapRange(p, m)
	case schema.OpUnmap:
		t.unmapRange(p, m)
	case schema.OpOpen:
		t.open(p, m)
	case schema.OpClose:
		t.close(p, m)
	case schema.OpExport:
		t.export(p, m)
	case schema.OpPoolCreate:
		t.poolCreate(p, ref, m)
	case schema.OpPoolDestroy:
		t.poolDestroy(p, m)
	case schema.OpPoolInfo:
		t.poolInfo(p, m)
	case schema.OpMemInfo:
		t.memInfo(p, m)
	case schema.OpContextCreate:
		t.contextCreate(p, ref, m)
	case schema.OpContextDestroy:
		t.contextDestroy(p, m)
	case schema.OpContextRetain:
		t.contextRetain(p, m)
	case schema.OpContextRelease:
		t.contextRelease(p, m)
	case schema.OpContextReset:
		t.contextReset(p, m)
	case schema.OpReserve, schema.OpUnreserve, schema.OpAccess, schema.OpMapArray, schema.OpBind, schema.OpUnbind,
		schema.OpPrefetch, schema.OpPoolTrim, schema.OpModuleLoad, schema.OpModuleUnload:
		// Only counted as calls: they neither create memory nor end its life.
	default:
		t.counters.UnknownOps++
	}
}

// name updates the name under which the process counts. The change waits until the process has no live memory, so that
// a workload frees only its own allocations. The name comes from the event's thread because one batch may hold events
// from before and after an exec.
func (t *Tracker) name(p *proc, m *schema.Memory) {
	comm := t.in.Processes[t.in.Threads[m.Thread].Process].Comm
	if p.State.comm != comm && p.State.held == 0 {
		t.detach(p)
		p.State.comm = comm
	}
}

// alloc makes the event's memory live.
func (t *Tracker) alloc(p *proc, m *schema.Memory) {
	i := t.insert(p, &p.State.addresses, m)
	if i == 0 {
		return
	}
	a := t.slab.at(i)
	switch class := p.State.rows[a.row].class; {
	case endsWithContext(class):
		a.owner = t.context(p, m)
		p.State.contexts[a.owner].live++
	case class == schema.ClassPool && m.Pool != 0:
		if a.owner = t.pool(p, m); a.owner != 0 {
			p.State.pools[a.owner].live.add(m.Bytes)
		}
	}
	t.addLive(p, i, m.Bytes)
}

// insert adds an entry with key m.Ptr to the slab and to an index. It returns 0 if m.Ptr is 0: the producer could not
// read the out-parameter and has counted the event as lost.
func (t *Tracker) insert(p *proc, x *index, m *schema.Memory) uint32 {
	if m.Ptr == 0 {
		return 0
	}
	if old := x.find(&t.slab, m.Ptr); old != 0 {
		t.count(p, reallocOverLive)
		t.drop(p, x, old)
	}
	p.Ended = false // a call proves that the process runs, even after an exit record
	row := t.row(p, m)
	i := t.slab.get()
	a := t.slab.at(i)
	a.key, a.since, a.refs = m.Ptr, returned(m), 1
	a.thread, a.row, a.origin = t.in.slots[m.Thread], row, t.in.origins[m.Call]
	t.threads.slots[a.thread].live++
	x.insert(&t.slab, i)
	return i
}

func returned(m *schema.Memory) schema.KTime { return m.Time + schema.KTime(m.Duration) }

// addLive adds live memory to every sum.
func (t *Tracker) addLive(p *proc, i uint32, bytes uint64) {
	a := t.slab.at(i)
	a.bytes = bytes
	p.State.boot.sizes.link(&t.slab, i)
	r := &p.State.rows[a.row]
	w := t.workload(p, r)
	w.allocated += bytes
	w.allocs++
	p.State.sum(&t.threads.slots[a.thread], r, bytes)
}

// sum adds live memory to the sums of its process, thread, row and GPU.
func (s *state) sum(by *thread, r *row, bytes uint64) {
	s.held++
	r.live.add(bytes)
	r.peak = max(r.peak, r.live.bytes)
	switch {
	case r.class.OnGPU():
		by.gpu.add(bytes)
		s.live.add(bytes)
		s.peak = max(s.peak, s.live.bytes)
		r.card.add(bytes)
	case r.class.OnHost():
		s.hostLive.add(bytes)
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
	i := x.find(&t.slab, m.Ptr)
	switch {
	case i == 0:
		t.count(p, unmatchedFree)
	case m.Time < t.slab.at(i).since:
		t.count(p, lateFree)
	case t.slab.at(i).refs.down():
		t.drop(p, x, i)
	}
}

// drop removes the key of allocation i, so that the driver may reuse it. The memory is removed too, unless mappings
// keep it.
func (t *Tracker) drop(p *proc, x *index, i uint32) {
	x.remove(&t.slab, i)
	a := t.slab.at(i)
	a.refs = 0
	if a.maps == 0 {
		t.remove(p, i)
	}
}

// remove subtracts an entry from every sum and reclaims it.
func (t *Tracker) remove(p *proc, i uint32) {
	a, s := t.slab.at(i), &p.State
	r := &s.rows[a.row]
	if a.kind == memory {
		c := t.workload(p, r)
		c.freed += a.bytes
		c.frees++
		s.held--
		r.live.sub(a.bytes)
		switch {
		case r.class.OnGPU():
			s.live.sub(a.bytes)
			r.card.sub(a.bytes)
		case r.class.OnHost():
			s.hostLive.sub(a.bytes)
		}
	}
	t.reclaim(i)
}

// reclaim subtracts entry i from the sums that endImage does not reset, and returns it to the slab.
func (t *Tracker) reclaim(i uint32) {
	a := t.slab.at(i)
	by := &t.threads.slots[a.thread]
	by.live--
	s := &by.process.State
	switch r := &s.rows[a.row]; {
	case a.kind == opened:
		s.unlinkHolder(&t.slab, i)
		r.holders--
		if a.owner != 0 {
			s.contexts[a.owner].live--
		}
	case a.kind != memory:
	default:
		switch {
		case endsWithContext(r.class):
			s.contexts[a.owner].live--
		case a.owner != 0:
			s.pools[a.owner].live.sub(a.bytes)
		}
		if r.class.OnGPU() {
			by.gpu.sub(a.bytes)
		}
		s.boot.sizes.unlink(&t.slab, i)
	}
	t.slab.put(i)
}

// exec ends the image of a process. The process continues under a new name.
func (t *Tracker) exec(p *proc) {
	t.endImage(p)
	t.detach(p)
	p.State.rows, p.State.samples = nil, nil // the new image numbers its GPUs independently
}

// exit ends a process. A repeated exit record changes nothing.
func (t *Tracker) exit(p *proc) {
	if p.Ended {
		return
	}
	t.endImage(p)
	t.detach(p)
	p.State.gap = inGap(p)
	p.Ended = true
}

// endImage turns live memory into unfreed memory.
func (t *Tracker) endImage(p *proc) {
	s := &p.State
	for i := range s.rows {
		r := &s.rows[i]
		if r.live.allocations > 0 {
			t.workload(p, r).unfreed += r.live.bytes
		}
		if r.class.OnGPU() {
			r.card.sub(r.live.bytes)
		}
		r.live = amount{}
	}
	s.unfreed.bytes += s.live.bytes
	s.unfreed.allocations += s.live.allocations
	s.hostUnfreed.bytes += s.hostLive.bytes
	s.hostUnfreed.allocations += s.hostLive.allocations
	s.unclosed += s.holders
	t.clear(p)
}

// clear reclaims all entries of a process. Memory that only mappings keep is in no index.
func (t *Tracker) clear(p *proc) {
	s := &p.State
	for _, g := range s.mappings {
		if g.memory == 0 {
			continue
		}
		if a := t.slab.at(g.memory); a.refs == 0 && a.maps > 0 {
			a.maps = 0
			t.reclaim(g.memory)
		}
	}
	s.mappings = nil
	s.addresses.drain(&t.slab, t.reclaim)
	s.handles.drain(&t.slab, t.reclaim)
	s.live, s.hostLive, s.held = amount{}, amount{}, 0
	s.contexts, s.current, s.pools = newContexts(), 0, nil
}
