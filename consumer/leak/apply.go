package leak

import "github.com/gputap/gputap/schema"

// apply is the rules, one event at a time.
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
	if ref.Class != schema.ClassGraph { // of a graph these are nodes, and its launch is counted where launches are
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

// rare is the rules of all calls but alloc and free.
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
		// Counted as calls: none of them makes memory or ends its life.
	default:
		t.counters.UnknownOps++
	}
}

// name has the process count under its present name from now on; one that renames itself does so
// when it holds nothing, so that a workload's frees are of its own allocations. The name comes with
// the event's thread: a batch may hold events from before and after an exec.
func (t *Tracker) name(p *proc, m *schema.Memory) {
	comm := t.in.Processes[t.in.Threads[m.Thread].Process].Comm
	if p.State.comm != comm && p.State.held == 0 {
		t.detach(p)
		p.State.comm = comm
	}
}

// alloc makes m's memory live.
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

// enter puts what appeared under the key m.Ptr into the slab and an index: 0 for a success at
// address 0, which is a record whose out-parameter could not be read; the producer has counted it
// as lost.
func (t *Tracker) insert(p *proc, x *index, m *schema.Memory) uint32 {
	if m.Ptr == 0 {
		return 0
	}
	if old := x.find(&t.slab, m.Ptr); old != 0 {
		t.countOverLive(p)
		t.drop(p, x, old)
	}
	p.Ended = false // it lives, whatever was said before
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

// appear adds memory that became live to every sum.
func (t *Tracker) addLive(p *proc, i uint32, bytes uint64) {
	a, s := t.slab.at(i), &p.State
	a.bytes = bytes
	s.boot.sizes.link(&t.slab, i)
	r := &s.rows[a.row]
	c := t.workload(p, r)
	c.allocated += bytes
	c.allocs++
	s.held++
	r.live.add(bytes)
	r.peak = max(r.peak, r.live.bytes)
	switch {
	case r.class.OnGPU():
		t.threads.slots[a.thread].gpu.add(bytes)
		s.live.add(bytes)
		s.peak = max(s.peak, s.live.bytes)
		r.card.add(bytes)
	case r.class.OnHost():
		s.hostLive.add(bytes)
	}
}

// free ends the life at m.Ptr whatever its class: cuMemFree frees managed and pool memory too, and
// closes what was opened.
func (t *Tracker) free(p *proc, m *schema.Memory) {
	if m.Ptr == 0 {
		t.counters.NullFrees++
		return
	}
	x := &p.State.addresses
	i := x.find(&t.slab, m.Ptr)
	switch {
	case i == 0:
		t.countUnmatched(p)
	case m.Time < t.slab.at(i).since:
		t.countLate(p)
	case t.slab.at(i).refs.down():
		t.drop(p, x, i)
	}
}

// overLive counts what appeared where something was live, whose end was not seen or comes late.
func (t *Tracker) countOverLive(p *proc) {
	t.counters.ReallocOverLive++
	p.State.boot.totals.reallocOverLive++
}

func (t *Tracker) countUnmatched(p *proc) {
	t.counters.UnmatchedFrees++
	p.State.boot.totals.unmatchedFrees++
}

// late counts the free of a life that an allocation over it has ended already.
func (t *Tracker) countLate(p *proc) {
	t.counters.LateFrees++
	p.State.boot.totals.lateFrees++
}

// drop takes away the key of allocation i, which may then be given out anew. The memory goes too,
// unless mappings keep it.
func (t *Tracker) drop(p *proc, x *index, i uint32) {
	x.remove(&t.slab, i)
	a := t.slab.at(i)
	a.refs = 0
	if a.maps == 0 {
		t.remove(p, i)
	}
}

// vanish takes freed memory out of every sum.
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

// reclaim takes i out of the sums that the end of an image does not clear as a whole.
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

// exec ends the image of a process, which goes on under a new name.
func (t *Tracker) exec(p *proc) {
	t.endImage(p)
	t.detach(p)
	p.State.rows, p.State.samples = nil, nil // the new image numbers its GPUs anew
}

// exit ends a process. A second record of it changes nothing.
func (t *Tracker) exit(p *proc) {
	if p.Ended {
		return
	}
	t.endImage(p)
	t.detach(p)
	p.State.gap = inGap(p)
	p.Ended = true
}

// endImage makes what is live unfreed.
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

// clear gives back everything live of a process. Memory held by mappings alone is in no index.
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
