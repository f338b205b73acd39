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
	t.call(p, m).Count(m.Result)
	if m.Result != 0 {
		r := &p.State.rows[t.row(p, m)]
		t.workloads.fail(t.workload(p, r), ref.Symbol, m.Result)
		return
	}
	switch ref.Op {
	case schema.OpAlloc:
		t.alloc(p, &p.State.addresses, m)
	case schema.OpFree:
		t.free(p, m)
	case schema.OpCreate:
		t.alloc(p, &p.State.handles, m)
	case schema.OpRelease:
		t.release(p, m)
	case schema.OpMap:
		t.mapRange(p, m)
	case schema.OpUnmap:
		t.unmapRange(p, m)
	default:
		t.counters.UnknownOps++
	}
}

// name has the process count under its present name from now on. The name comes with the event's
// thread: a batch may hold events from before and after an exec.
func (t *Tracker) name(p *proc, m *schema.Memory) {
	comm := t.in.Processes[t.in.Threads[m.Thread].Process].Comm
	if p.State.comm != comm {
		t.detach(p)
		p.State.comm = comm
	}
}

// alloc makes m's memory live. A success at address 0 is a record whose out-parameter could not be
// read; the producer has counted it as lost.
func (t *Tracker) alloc(p *proc, x *index, m *schema.Memory) {
	if m.Ptr == 0 {
		return
	}
	if old := x.find(&t.slab, m.Ptr); old != 0 {
		t.counters.ReallocOverLive++
		p.State.host.totals.reallocOverLive++
		t.drop(p, x, old)
	}
	p.Ended = false // it lives, whatever was said before
	row := t.row(p, m)
	i := t.slab.take()
	a := t.slab.at(i)
	a.key, a.bytes, a.since, a.named = m.Ptr, m.Bytes, m.Time+schema.KTime(m.Duration), true
	a.thread, a.row, a.origin = t.in.slots[m.Thread], row, t.in.origins[m.Call]
	by := &t.threads.slots[a.thread]
	by.live++
	if p.State.rows[row].class.OnGPU() {
		by.gpu.add(m.Bytes)
	}
	t.sizes.link(&t.slab, i)
	x.insert(&t.slab, i)
	t.appear(p, &p.State.rows[row], m.Bytes)
}

// appear adds memory that became live to every sum.
func (t *Tracker) appear(p *proc, r *row, bytes uint64) {
	c := t.workload(p, r)
	c.allocated += bytes
	c.allocs++
	r.live.add(bytes)
	r.peak = max(r.peak, r.live.bytes)
	s := &p.State
	switch {
	case r.class.OnGPU():
		s.live.add(bytes)
		s.peak = max(s.peak, s.live.bytes)
	case r.class == schema.ClassPinned:
		s.hostLive.add(bytes)
	}
}

// free ends the life at m.Ptr whatever its class: cuMemFree frees managed and pool memory too.
func (t *Tracker) free(p *proc, m *schema.Memory) {
	if m.Ptr == 0 {
		t.counters.NullFrees++
		return
	}
	i := p.State.addresses.find(&t.slab, m.Ptr)
	switch {
	case i == 0:
		t.unmatched(p)
	case m.Time < t.slab.at(i).since:
		t.late(p)
	default:
		t.drop(p, &p.State.addresses, i)
	}
}

func (t *Tracker) unmatched(p *proc) {
	t.counters.UnmatchedFrees++
	p.State.host.totals.unmatchedFrees++
}

// late counts the free of a life that an allocation over it has ended already.
func (t *Tracker) late(p *proc) {
	t.counters.LateFrees++
	p.State.host.totals.lateFrees++
}

// drop takes away the key of allocation i, which may then be given out anew. The memory goes too,
// unless mappings keep it.
func (t *Tracker) drop(p *proc, x *index, i uint32) {
	x.remove(&t.slab, i)
	a := t.slab.at(i)
	a.named = false
	if a.maps == 0 {
		t.vanish(p, i)
	}
}

// vanish takes freed memory out of every sum.
func (t *Tracker) vanish(p *proc, i uint32) {
	a, s := t.slab.at(i), &p.State
	r := &s.rows[a.row]
	c := t.workload(p, r)
	c.freed += a.bytes
	c.frees++
	r.live.sub(a.bytes)
	switch {
	case r.class.OnGPU():
		s.live.sub(a.bytes)
	case r.class == schema.ClassPinned:
		s.hostLive.sub(a.bytes)
	}
	t.reclaim(i)
}

func (t *Tracker) reclaim(i uint32) {
	a := t.slab.at(i)
	by := &t.threads.slots[a.thread]
	by.live--
	if by.process.State.rows[a.row].class.OnGPU() {
		by.gpu.sub(a.bytes)
	}
	t.sizes.unlink(&t.slab, i)
	t.slab.give(i)
}

// exec ends the image of a process, which goes on under a new name.
func (t *Tracker) exec(p *proc) {
	t.endImage(p)
	t.detach(p)
	p.State.rows = nil // the new image numbers its GPUs anew
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
		r.live = amount{}
	}
	s.unfreed.bytes += s.live.bytes
	s.unfreed.allocations += s.live.allocations
	s.hostUnfreed.bytes += s.hostLive.bytes
	s.hostUnfreed.allocations += s.hostLive.allocations
	t.clear(p)
}

// clear gives back everything live of a process. Memory held by mappings alone is in no index.
func (t *Tracker) clear(p *proc) {
	s := &p.State
	for _, g := range s.mappings {
		if g.memory == 0 {
			continue
		}
		a := t.slab.at(g.memory)
		a.maps--
		if a.maps == 0 && !a.named {
			t.reclaim(g.memory)
		}
	}
	s.mappings = nil
	s.addresses.drain(&t.slab, t.reclaim)
	s.handles.drain(&t.slab, t.reclaim)
	s.live, s.hostLive = amount{}, amount{}
}
