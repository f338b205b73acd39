package naive

import (
	"slices"
	"strings"

	"github.com/gputap/gputap/schema"
)

// world is the memory of all processes after some events.
type world struct {
	programs []*program
	boots    []*boot
	owners   map[token]uint32 // PID of the process that exported a token
	counters counters
}

type token struct {
	cluster, host, boot string
	value               uint64
}

type counters struct {
	unmatched, over, late, null, handles, contexts uint64
}

// program is the memory of one process.
type program struct {
	id       schema.ProcessID
	boot     *boot
	started  bool // it did not run before gputap
	ended    bool
	gap      bool    // it ended in a gap
	lives    []*life // memory and holders, in order of their calls
	mappings []mapping
	contexts []*context
	pools    []*pool
	samples  []sample // one of each GPU, the latest
	uuids    map[int]string
	inferred map[int]bool
	peaks    map[int]peak // by ordinal: of GPUs whose memory the process called for

	peak                 uint64
	unfreed, withContext amount
	exports, unclosed    uint64
	calls                map[string]*calls
}

type amount struct{ bytes, allocations uint64 }

func (a *amount) add(bytes uint64) { a.bytes, a.allocations = a.bytes+bytes, a.allocations+1 }

type peak struct {
	bytes uint64
	at    schema.KTime
}

// life is one allocation, or one holder of memory of others.
type life struct {
	event
	key     uint64
	handle  bool // key is a handle of physical memory, not an address
	since   schema.KTime
	refs    int
	maps    int
	holder  bool
	context *context // that frees it when it ends; nil: none, or unknown
	pool    *pool
}

type mapping struct {
	ptr, end uint64
	since    schema.KTime
	of       *life
}

type context struct {
	handle         uint64
	since          schema.KTime
	users          int
	primary, ended bool
}

type pool struct {
	event
	handle              uint64
	since               schema.KTime
	limit               uint64
	imported, destroyed bool
	reserved, used      *event
}

type sample struct {
	event
	own, all uint64
}

// endsWithContext reports whether memory of a class is freed when its CUDA context ends.
func endsWithContext(c schema.MemClass) bool {
	return slices.Contains([]schema.MemClass{schema.ClassDevice, schema.ClassManaged, schema.ClassPinned,
		schema.ClassRegistered, schema.ClassArray}, c)
}

// gone removes a life without references and mappings.
func (p *program) gone(l *life) {
	if l.refs <= 0 && l.maps == 0 {
		p.lives = slices.DeleteFunc(p.lives, func(other *life) bool { return other == l })
	}
}

// drop ends the key of a life.
func (p *program) drop(l *life) {
	l.refs = 0
	p.gone(l)
}

func (p *program) find(key uint64, handle bool) *life {
	for _, l := range p.lives {
		if l.key == key && l.handle == handle && l.refs > 0 {
			return l
		}
	}
	return nil
}

func (p *program) contextOf(handle uint64) *context {
	for _, c := range p.contexts {
		if handle != 0 && c.handle == handle && !c.ended {
			return c
		}
	}
	return nil
}

func (p *program) poolOf(handle uint64) *pool {
	for _, o := range p.pools {
		if o.handle == handle && !o.destroyed {
			return o
		}
	}
	return nil
}

// live sums GPU memory that a condition selects.
func (p *program) live(selects func(*life) bool) (sum amount) {
	for _, l := range p.lives {
		if !l.holder && selects(l) {
			sum.add(l.Bytes)
		}
	}
	return sum
}

func onGPU(l *life) bool { return l.call.Class.OnGPU() }

// on sums the memory on the GPU of an ordinal.
func (p *program) on(ordinal int) amount {
	return p.live(func(l *life) bool { return onGPU(l) && l.ordinal() == ordinal })
}

func (p *program) holders() (list []*life) {
	for _, l := range p.lives {
		if l.holder {
			list = append(list, l)
		}
	}
	return list
}

// start makes memory or a holder live.
func (w *world) start(p *program, e *event, handle bool) *life {
	if e.Ptr == 0 {
		return nil
	}
	if old := p.find(e.Ptr, handle); old != nil {
		w.counters.over++
		p.drop(old)
	}
	l := &life{event: *e, key: e.Ptr, handle: handle, since: e.returned(), refs: 1}
	p.lives = append(p.lives, l)
	p.touch(e)
	return l
}

// alloc makes memory live, and notes the peaks.
func (w *world) alloc(p *program, e *event, handle bool) {
	l := w.start(p, e, handle)
	if l == nil {
		return
	}
	switch {
	case endsWithContext(e.call.Class):
		l.context = p.useContext(e)
	case e.call.Class == schema.ClassPool && e.Pool != 0:
		l.pool = p.usePool(e.Pool, e)
	}
	if !onGPU(l) {
		return
	}
	p.peak = max(p.peak, p.live(onGPU).bytes)
	if now := p.on(l.ordinal()).bytes; now > p.peaks[l.ordinal()].bytes {
		p.peaks[l.ordinal()] = peak{now, l.since}
	}
}

// useContext returns the current context of a call.
func (p *program) useContext(e *event) *context {
	c := p.contextOf(e.context)
	if c == nil && e.context != 0 {
		c = &context{handle: e.context}
		p.contexts = append(p.contexts, c)
	}
	return c
}

func (p *program) usePool(handle uint64, e *event) *pool {
	o := p.poolOf(handle)
	if o == nil {
		o = &pool{event: *e, handle: handle}
		p.pools = append(p.pools, o)
	}
	return o
}

// end drops a reference of a key: free, release or close.
func (w *world) end(p *program, e *event, l *life, unknown *uint64) {
	switch {
	case l == nil:
		*unknown++
	case e.Time < l.since:
		w.counters.late++
	default:
		l.refs--
		p.gone(l)
	}
}

func (w *world) open(p *program, e *event) {
	handle := e.call.Class == schema.ClassVMM
	if old := p.find(e.Ptr, handle); old != nil && e.call.Class == schema.ClassIPC && old.holder && old.Aux == e.Aux {
		old.refs++
		return
	}
	l := w.start(p, e, handle)
	if l == nil {
		return
	}
	if l.holder = true; strings.HasPrefix(e.call.Symbol, "cuIpc") {
		l.context = p.useContext(e)
	}
}

// mapRange ends the mappings that it overlaps.
func (w *world) mapRange(p *program, e *event) {
	of := p.find(e.Aux, true)
	if of == nil {
		w.counters.handles++
	} else {
		of.maps++
	}
	kept := p.mappings[:0:0]
	for _, m := range p.mappings {
		if m.ptr >= e.Ptr+e.Bytes || m.end <= e.Ptr {
			kept = append(kept, m)
			continue
		}
		w.counters.over++
		p.unmap(m)
	}
	p.mappings = append(kept, mapping{e.Ptr, e.Ptr + e.Bytes, e.returned(), of})
}

func (p *program) unmap(m mapping) {
	if m.of != nil {
		m.of.maps--
		p.gone(m.of)
	}
}

func (w *world) unmapRange(p *program, e *event) {
	late, ended := false, false
	kept := p.mappings[:0:0]
	for _, m := range p.mappings {
		inside := m.ptr >= e.Ptr && m.end <= e.Ptr+e.Bytes
		if inside && e.Time >= m.since {
			ended = true
			p.unmap(m)
			continue
		}
		late = late || inside
		kept = append(kept, m)
	}
	p.mappings = kept
	if late {
		w.counters.late++
	} else if !ended {
		w.counters.unmatched++
	}
}

func (w *world) retain(p *program, e *event) {
	l := p.find(e.Ptr, true)
	for _, m := range p.mappings {
		if m.ptr <= e.Aux && e.Aux < m.end {
			l = m.of
		}
	}
	if l == nil || e.Ptr == 0 {
		w.counters.handles++
		return
	}
	if l.refs == 0 {
		if old := p.find(e.Ptr, true); old != nil {
			w.counters.over++
			p.drop(old)
		}
		l.key, l.since = e.Ptr, e.returned()
	}
	l.refs++
}
