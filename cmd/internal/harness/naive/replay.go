package naive

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// replay returns the memory of all processes after all events.
func (l *Log) replay() *world {
	w := &world{owners: map[token]uint32{}}
	next := 0
	for i := range l.batches {
		b := &l.batches[i]
		if b.Kind == schema.KindMemory || b.Kind == schema.KindHost || b.Kind == schema.KindTensor {
			w.header(&b.Header)
		}
		for ; next < len(l.events) && l.events[next].number == i; next++ {
			if e := &l.events[next]; e.kind == schema.KindMemory {
				w.apply(e)
			}
		}
	}
	return w
}

// boot is one boot of a host.
type boot struct {
	schema.Header              // of its latest batch
	last          schema.KTime // of its latest event
	seq           [schema.NumKinds]uint64
	lost          uint64       // events
	lossAt        schema.KTime // the latest time at which events may have been lost; 0: none
	open          bool         // the loss may last until the next event
}

func (w *world) boot(h *schema.Header) *boot {
	for _, b := range w.boots {
		if b.Cluster == h.Cluster && b.Host == h.Host && b.BootID == h.BootID {
			return b
		}
	}
	b := &boot{Header: *h}
	w.boots = append(w.boots, b)
	for _, p := range w.programs {
		if old := p.boot; old.Cluster == h.Cluster && old.Host == h.Host && old.ClockOffset < h.ClockOffset {
			old.lossAt = max(old.lossAt, old.last) // the end of the process was not seen
			p.exit()
		}
	}
	return b
}

// header takes the news of a batch about losses. A missing batch may be of any kind. The causes of loss that do not
// concern memory are left out.
func (w *world) header(h *schema.Header) {
	b := w.boot(h)
	if h.Seq > b.seq[h.Kind]+1 {
		b.lossAt, b.open = max(b.lossAt, b.last), true
	}
	b.seq[h.Kind] = h.Seq
	if h.Kind == schema.KindTensor {
		return
	}
	b.last = max(b.last, h.Last)
	lost := h.TotalLost() - h.Lost[schema.LossBulkRing] - h.Lost[schema.LossTensorRing] - h.Lost[schema.LossSpool]
	if lost > b.lost {
		b.lossAt, b.open = max(b.lossAt, b.last), b.open || h.Events == 0
	}
	b.lost = lost
	if b.open && h.Events > 0 {
		b.lossAt, b.open = max(b.lossAt, h.First), false
	}
}

func (w *world) program(e *event) *program {
	for _, p := range w.programs {
		if p.id == e.id {
			return p
		}
	}
	p := &program{id: e.id, boot: w.boot(&e.Header), started: !e.process.Late, peaks: map[int]peak{},
		uuids: map[int]string{}, inferred: map[int]bool{}, calls: map[string]*calls{}}
	for _, old := range w.programs {
		if old.boot == p.boot && old.id.PID == p.id.PID {
			old.exit() // Linux has reused the PID
		}
	}
	w.programs = append(w.programs, p)
	return p
}

func (w *world) apply(e *event) {
	p := w.program(e)
	switch {
	case e.call.Op == schema.OpExit:
		p.exit()
		return
	case e.call.Op == schema.OpExec:
		p.endImage()
		p.uuids, p.inferred, p.peaks, p.samples = map[int]string{}, map[int]bool{}, map[int]peak{}, nil
		return
	case e.call.Class != schema.ClassGraph && !count(p.calls, e):
		return
	case e.Result != 0:
		p.touch(e)
		return
	}
	w.effect(p, e)
	if e.call.Op == schema.OpMemInfo {
		w.sample(p, e)
	}
}

// touch notes which GPU a call named that allocated or opened memory, failed, or asked for memory.
func (p *program) touch(e *event) {
	if e.call.Class.OnGPU() {
		p.peaks[e.ordinal()] = p.peaks[e.ordinal()]
	}
	if e.gpu != nil && e.gpu.UUID != "" {
		p.uuids[e.ordinal()], p.inferred[e.ordinal()] = e.gpu.UUID, e.gpu.Inferred
	}
}

// effect changes the memory after a successful call.
func (w *world) effect(p *program, e *event) {
	c := &w.counters
	switch e.call.Op {
	case schema.OpAlloc:
		w.alloc(p, e, false)
	case schema.OpCreate:
		w.alloc(p, e, true)
	case schema.OpFree:
		if e.Ptr == 0 {
			c.null++
			return
		}
		w.end(p, e, p.find(e.Ptr, false), &c.unmatched)
	case schema.OpRelease:
		w.end(p, e, p.find(e.Ptr, true), &c.handles)
	case schema.OpClose:
		l := p.find(e.Ptr, false)
		if l != nil && !l.holder {
			l = nil
		}
		w.end(p, e, l, &c.unmatched)
	case schema.OpOpen:
		w.open(p, e)
	case schema.OpMap:
		w.mapRange(p, e)
	case schema.OpUnmap:
		w.unmapRange(p, e)
	case schema.OpRetain:
		w.retain(p, e)
	case schema.OpExport:
		if p.exports++; e.Aux >= 1<<32 { // smaller ones are file descriptors
			w.owners[token{p.id.Cluster, p.id.Host, p.id.BootID, e.Aux}] = p.id.PID
		}
	case schema.OpPoolCreate, schema.OpPoolDestroy, schema.OpPoolInfo:
		w.poolCall(p, e)
	case schema.OpContextCreate, schema.OpContextDestroy, schema.OpContextRetain, schema.OpContextRelease,
		schema.OpContextReset:
		w.contextCall(p, e)
	}
}

func (w *world) poolCall(p *program, e *event) {
	o := p.poolOf(e.Ptr)
	switch {
	case e.call.Op == schema.OpPoolCreate:
		if o != nil {
			w.counters.over++
			o.destroyed, o.reserved, o.used = true, nil, nil
		}
		o = &pool{event: *e, handle: e.Ptr, since: e.returned(), limit: e.Aux}
		if o.imported = e.call.Class == schema.ClassIPC; o.imported {
			o.limit = 0 // Aux is the token
		}
		p.pools = append(p.pools, o)
	case e.call.Op == schema.OpPoolInfo && e.Aux == 5: // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
		p.usePool(e.Ptr, e).reserved = e
	case e.call.Op == schema.OpPoolInfo && e.Aux == 7: // CU_MEMPOOL_ATTR_USED_MEM_CURRENT
		p.usePool(e.Ptr, e).used = e
	case e.call.Op == schema.OpPoolInfo:
	case o == nil:
		w.counters.unmatched++
	case e.Time < o.since:
		w.counters.late++
	default:
		o.destroyed, o.reserved, o.used = true, nil, nil
	}
}

func (w *world) contextCall(p *program, e *event) {
	c := p.contextOf(e.Ptr)
	switch op := e.call.Op; {
	case op == schema.OpContextCreate:
		if c != nil {
			w.counters.over++
			c.ended = true
			w.endContext(p, c, e.returned())
		}
		p.contexts = append(p.contexts, &context{handle: e.Ptr, since: e.returned()})
	case op == schema.OpContextRetain:
		if c == nil {
			c = &context{handle: e.Ptr}
			p.contexts = append(p.contexts, c)
		}
		c.primary = true
		c.users++
	case c == nil:
		w.counters.contexts++
	case op == schema.OpContextReset:
		w.endContext(p, c, e.Time)
	case op == schema.OpContextDestroy && e.Time < c.since:
		w.counters.late++
	case op == schema.OpContextDestroy:
		c.ended = true
		w.endContext(p, c, e.Time)
	case c.users > 1:
		c.users--
	case c.users == 1 && p.evidence() == "complete":
		c.users = 0
		w.endContext(p, c, e.Time)
	default: // a release whose effect is unknown
		c.users = 0
		w.counters.contexts++
	}
}

// endContext frees what was allocated in a context before a time. Memory of an unknown context may be gone too.
func (w *world) endContext(p *program, c *context, at schema.KTime) {
	if p.live(func(l *life) bool { return endsWithContext(l.call.Class) && l.context == nil }).allocations > 0 {
		w.counters.contexts++
	}
	for _, l := range slices.Clone(p.lives) {
		if l.context != c || l.since > at {
			continue
		}
		if !l.holder {
			p.withContext.add(l.Bytes)
		}
		p.drop(l)
	}
}

func (p *program) exit() {
	if p.ended {
		return
	}
	p.gap = p.inGap()
	p.endImage()
	p.ended = true
}

// endImage turns live memory into unfreed memory.
func (p *program) endImage() {
	left := p.live(onGPU)
	p.unfreed.bytes += left.bytes
	p.unfreed.allocations += left.allocations
	p.unclosed += uint64(len(p.holders()))
	p.lives, p.mappings, p.contexts, p.pools = nil, nil, nil, nil
}

func (p *program) inGap() bool { return p.boot.lossAt > 0 && p.boot.lossAt >= p.id.Start }

func (p *program) evidence() string {
	switch {
	case p.gap || !p.ended && p.inGap():
		return "gap"
	case !p.started:
		return "late"
	}
	return "complete"
}

// sample notes an answer of cuMemGetInfo, and what was live on that GPU at the same time.
func (w *world) sample(p *program, e *event) {
	p.touch(e)
	s := sample{event: *e, own: p.on(e.ordinal()).bytes}
	s.all = s.own
	if e.gpu != nil && e.gpu.UUID != "" {
		s.all = 0
		for _, other := range w.programs {
			if other.boot != p.boot {
				continue
			}
			s.all += other.live(func(l *life) bool {
				return onGPU(l) && l.gpu != nil && other.uuids[l.ordinal()] == e.gpu.UUID
			}).bytes
		}
	}
	p.samples = slices.DeleteFunc(p.samples, func(old sample) bool { return old.ordinal() == e.ordinal() })
	p.samples = append(p.samples, s)
}
