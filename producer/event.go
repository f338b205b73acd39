package producer

import (
	"math"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// The translation of records into events: the only place that knows both.

func (r *reader) memory(m *bpf.MemoryRecord) {
	call := &schema.Calls[m.Call]
	plain := (call.Op == schema.OpAlloc || call.Op == schema.OpFree) && m.Pool == 0 && m.Capture == 0
	o, known := r.batches.open[schema.KindMemory], &r.memories[(m.TID+uint32(m.Call))%uint32(len(r.memories))]
	if plain && m.Ptr != 0 && known.learned == r.learned && known.generation == o.generation && known.is(m) {
		e := &known.event
		e.Time, e.Duration, e.Result, e.Ptr, e.Bytes = schema.KTime(m.Time), m.Duration, m.Result, m.Ptr, m.Bytes
		o.AddMemory(e)
		r.added(schema.KindMemory, call.Op)
		return
	}
	if !plain {
		r.learned++
		own := *m // what is known of devices is filled in, and a ring is not written to
		m = &own
	}
	t := r.known.thread(&m.Head)
	p := t.process
	p.devices.context(m, call.Op)
	p.devices.pool(m, call.Op)
	switch {
	case call.Op == schema.OpStreamCreate, call.Op == schema.OpStreamDestroy:
		p.devices.stream(m, call.Op)
		r.streamLife(m, t)
		return
	case call.Op == schema.OpModuleUnload && m.Result == 0:
		p.unload(m.Ptr, schema.KTime(m.Time))
	case m.Capture != 0 && m.Result == 0:
		p.graphs.recordMemory(m, call.Op, p.devices.of(m))
	}
	if !r.wanted[schema.KindMemory] {
		return
	}
	if m.Ptr == 0 && m.Result == 0 && (call.Op == schema.OpAlloc || call.Op == schema.OpCreate) {
		return // the pointer could not be read: counted as LossRead where it happened
	}
	var e schema.Memory // field by field: of a literal the compiler makes a second copy, which waits for the first
	e.Duration, e.Result, e.Ptr, e.Bytes, e.Aux, e.Pool = m.Duration, m.Result, m.Ptr, m.Bytes, m.Aux, m.Pool
	switch call.Op {
	case schema.OpAlloc, schema.OpFree, schema.OpPrefetch:
		e.Aux = m.CUDAStream
	}
	generation := o.generation // addMemory may close the batch
	r.addMemory(&e, &m.Head, t, r.ref(schema.KindMemory, &m.Head), place{m.CUDAStream, m.Device, call.Class.OnHost()})
	if plain && r.settled(&m.Head, t, m.CUDAStream) {
		*known = knownMemory{*m, r.learned, generation, e}
	}
}

// place is what a record says about where its memory is, besides the thread's context.
type place struct {
	cudaStream uint64
	device     int32
	onHost     bool
}

func (r *reader) addMemory(e *schema.Memory, h *bpf.Head, t *thread, call uint32, at place) {
	o := r.batches.open[schema.KindMemory]
	e.Time, e.Thread, e.Call = schema.KTime(h.Time), r.threadIndex(o, t), call
	context := t.process.devices.current(h, at.cudaStream)
	e.GPU = r.contextGPU(o, t, context, schema.KTime(h.Time))
	if context != 0 {
		e.Context = contextIndex(o, t, schema.Context{Handle: context, GPU: e.GPU})
	}
	switch {
	case at.device >= mostOrdinals:
		e.GPU = 0
	case at.device >= 0:
		e.GPU = o.GPU(r.gpu(t.process, uint32(at.device)))
	case at.device == bpf.DeviceNone, at.onHost:
		e.GPU = 0
	}
	o.AddMemory(e)
	r.added(schema.KindMemory, schema.Calls[h.Call].Op)
}

func (r *reader) array(a *bpf.ArrayRecord) {
	if !r.wanted[schema.KindMemory] || (a.Handle == 0 && a.Result == 0) {
		return
	}
	e := schema.Memory{Duration: a.Duration, Result: a.Result, Ptr: a.Handle, Bytes: arrayBytes(a)}
	r.addMemory(&e, &a.Head, r.known.thread(&a.Head), r.ref(schema.KindMemory, &a.Head), place{device: bpf.DeviceOfContext})
}

func (r *reader) launch(l *bpf.LaunchRecord) {
	o, known := r.batches.open[schema.KindLaunch], r.alike(l)
	if known.learned == r.learned && known.generation == o.generation && known.is(l) {
		known.event.Time = schema.KTime(l.Time)
		o.AddLaunch(&known.event)
		r.added(schema.KindLaunch, schema.OpLaunch)
		return
	}
	call := &schema.Calls[l.Call]
	t := r.known.thread(&l.Head)
	ofGraph := call.Op == schema.OpGraphLaunch || call.Op == schema.OpGraphUpload
	switch {
	case l.Capture == 0:
	case call.Op == schema.OpLaunch:
		t.process.graphs.launched(l.Capture, l.Func)
	case call.Op == schema.OpGraphLaunch: // it becomes a child
		t.process.graphs.launchedGraph(l.Capture, l.Func)
	}
	if call.Op == schema.OpGraphLaunch && l.Capture == 0 {
		r.graphMemory(l, t)
	}
	if !r.wanted[schema.KindLaunch] {
		return
	}
	var function uint32
	switch {
	case ofGraph:
		function = r.executableIndex(o, t.process, l.Func)
	case call.Op == schema.OpHostFunc:
		function = o.Func(schema.Func{Handle: l.Func})
	default:
		function = r.functionIndex(o, t.process, l.Func, schema.KTime(l.Time))
	}
	e := schema.Launch{
		Time:   schema.KTime(l.Time),
		Thread: r.threadIndex(o, t),
		GPU:    r.contextGPU(o, t, t.process.devices.current(&l.Head, l.CUDAStream), schema.KTime(l.Time)),
		Shape: o.Shape(schema.LaunchShape{
			Call: r.ref(schema.KindLaunch, &l.Head), Func: function, Grid: l.Grid, Block: l.Block, SharedBytes: l.SharedBytes,
		}),
		CUDAStream: streamIndex(o, t, l.CUDAStream),
	}
	if call.Op == schema.OpLaunch && l.Capture == 0 && t.process.lasts(l) && r.settled(&l.Head, t, l.CUDAStream) {
		*known = knownLaunch{*l, r.learned, o.generation, e}
	}
	o.AddLaunch(&e)
	r.added(schema.KindLaunch, call.Op)
}

func (r *reader) functionIndex(o *openBatch, p *process, handle uint64, at schema.KTime) uint32 {
	f := p.function(handle, at, &r.layout)
	c := &f.interned[schema.KindLaunch]
	if c.generation != o.generation {
		c.generation, c.index = o.generation, o.Func(f.Func)
	}
	return c.index
}

// executableIndex also says, once in each batch, what the executable graph runs.
func (r *reader) executableIndex(o *openBatch, p *process, handle uint64) uint32 {
	e := p.graphs.executable(handle)
	c := &e.interned[schema.KindLaunch]
	if c.generation == o.generation {
		return c.index
	}
	if r.batches.full(o) {
		r.batches.close(o)
	}
	if !p.graphs.mayTell(handle, o.generation) {
		r.batches.close(o)
		p.graphs.mayTell(handle, o.generation)
	}
	p.graphs.told[handle] = true
	c.generation, c.index = o.generation, o.Func(schema.Func{Handle: handle})
	g := schema.Graph{Func: c.index, Partial: e.partial}
	for kernel, n := range e.kernels {
		if len(g.Nodes)%16 == 0 && r.batches.full(o) {
			g.Partial = true
			break
		}
		g.Nodes = append(g.Nodes, schema.Node{Func: r.functionIndex(o, p, kernel, r.now), Count: n})
	}
	o.Graph(g)
	return c.index
}

// graphMemory tells the memory that a graph's own nodes free and allocate when it runs.
func (r *reader) graphMemory(l *bpf.LaunchRecord, t *thread) {
	e := t.process.graphs.executable(l.Func)
	if !r.wanted[schema.KindMemory] || len(e.memory) == 0 {
		return
	}
	o := r.batches.open[schema.KindMemory]
	ref := schema.CallRef{Symbol: schema.Calls[l.Call].Symbol, Class: schema.ClassGraph}
	for _, b := range e.memory { // in order: an address may come twice
		at := place{cudaStream: l.CUDAStream, device: b.device}
		ref.Op = schema.OpAlloc
		if b.bytes == 0 {
			ref.Op, at.device = schema.OpFree, bpf.DeviceOfContext
		}
		r.addMemory(&schema.Memory{Ptr: b.ptr, Bytes: b.bytes, Aux: l.CUDAStream}, &l.Head, t, o.Call(ref), at)
	}
}

func (r *reader) copy(c *bpf.CopyRecord) {
	if !r.wanted[schema.KindCopy] {
		return
	}
	o := r.batches.open[schema.KindCopy]
	t := r.known.thread(&c.Head)
	call := &schema.Calls[c.Call]
	bytes := c.Bytes
	if call.Unit != 0 {
		bytes *= uint64(call.Unit)
	}
	ref := r.ref(schema.KindCopy, &c.Head)
	if c.SrcType|c.DstType != 0 && c.Capture == 0 && call.Direction == schema.DirDefault {
		known := call.Ref()
		known.Direction = direction(c.SrcType, c.DstType)
		ref = o.Call(known)
	}
	o.AddCopy(&schema.Copy{
		Time: schema.KTime(c.Time), Duration: c.Duration, Thread: r.threadIndex(o, t), Call: ref,
		GPU:    r.contextGPU(o, t, t.process.devices.current(&c.Head, c.CUDAStream), schema.KTime(c.Time)),
		Result: c.Result, Bytes: bytes, Dst: c.Dst, Src: c.Src, CUDAStream: streamIndex(o, t, c.CUDAStream),
	})
	r.added(schema.KindCopy, call.Op)
}

// direction of a copy by both CUmemorytypes.
func direction(src, dst uint16) schema.Direction {
	const host, device, array, unified = 1, 2, 3, 4
	onGPU := func(t uint16) bool { return t == device || t == array }
	switch {
	case src == host && onGPU(dst):
		return schema.HtoD
	case onGPU(src) && dst == host:
		return schema.DtoH
	case onGPU(src) && onGPU(dst):
		return schema.DtoD
	case src == host && dst == host:
		return schema.HtoH
	}
	return schema.DirDefault
}

func (r *reader) sync(s *bpf.SyncRecord) {
	r.addSync(&s.Head, r.known.thread(&s.Head), &schema.Sync{
		Duration: s.Duration, Result: s.Result, CUDAEvent: s.Handle, Until: s.Until, Elapsed: elapsed(s.Elapsed),
	}, s.CUDAStream)
}

// streamLife puts a CUDA stream's beginning and end among the waits.
func (r *reader) streamLife(m *bpf.MemoryRecord, t *thread) {
	cudaStream := m.CUDAStream
	if schema.Calls[m.Call].Op == schema.OpStreamCreate {
		cudaStream = m.Ptr
	}
	r.addSync(&m.Head, t, &schema.Sync{Duration: m.Duration, Result: m.Result}, cudaStream)
}

func (r *reader) addSync(h *bpf.Head, t *thread, e *schema.Sync, cudaStream uint64) {
	if !r.wanted[schema.KindSync] {
		return
	}
	o := r.batches.open[schema.KindSync]
	e.Time, e.Thread, e.Call = schema.KTime(h.Time), r.threadIndex(o, t), r.ref(schema.KindSync, h)
	e.GPU = r.contextGPU(o, t, t.process.devices.current(h, cudaStream), schema.KTime(h.Time))
	e.CUDAStream = streamIndex(o, t, cudaStream)
	o.AddSync(e)
	r.added(schema.KindSync, schema.Calls[h.Call].Op)
}

// elapsed is the ns of a time in ms as CUDA gives it; what is no time is 0.
func elapsed(ms float32) uint64 {
	if ms > 0 && ms < math.MaxInt64/1e6 {
		return uint64(float64(ms) * 1e6)
	}
	return 0
}

// end puts a process's exec or exit among the memory events, whatever is wanted: what it held is gone
// from here on.
func (r *reader) end(e *bpf.ThreadRecord) {
	leader := r.known.end(e, r.now)
	o := r.batches.open[schema.KindMemory]
	o.AddMemory(&schema.Memory{
		Time: schema.KTime(e.Time), Thread: r.threadIndex(o, leader), Call: r.ref(schema.KindMemory, &e.Head),
	})
	r.added(schema.KindMemory, schema.Calls[e.Call].Op)
}

// vanish tells the exit of a process whose own telling was lost.
func (r *reader) vanish(q *process) {
	r.end(&bpf.ThreadRecord{
		Head: bpf.Head{
			Type: bpf.RecordEnd, Call: uint16(schema.CallExit), TID: q.PID, TGID: q.PID, ThreadStart: uint64(q.Start), Time: uint64(r.now),
		},
		ProcessStart: uint64(q.Start),
	})
}

func (r *reader) added(kind schema.Kind, op schema.Op) {
	r.counted[op]++
	r.batches.added(kind, r.now)
}

// ref is a call's index in the open batch; of a recorded one that of its recorded form.
func (r *reader) ref(kind schema.Kind, h *bpf.Head) uint32 {
	o := r.batches.open[kind]
	if h.Capture != 0 {
		recorded := schema.Calls[h.Call].Ref()
		recorded.Op = schema.OpRecord
		return o.Call(recorded)
	}
	c := &r.calls[kind][h.Call]
	if c.generation != o.generation {
		c.generation, c.index = o.generation, o.Call(schema.Calls[h.Call].Ref())
	}
	return c.index
}

func (r *reader) threadIndex(o *openBatch, t *thread) uint32 {
	c := &t.interned[o.Kind()]
	if c.generation != o.generation {
		p := &t.process.interned[o.Kind()]
		if p.generation != o.generation {
			p.generation, p.index = o.generation, o.Process(t.process.Process)
		}
		c.generation, c.index = o.generation, o.Thread(schema.Thread{Process: p.index, TID: t.tid, Comm: t.comm})
	}
	return c.index
}

// knownContext is a context's index in the open batch.
type knownContext struct {
	schema.Context
	generation uint64
	index      uint32
}

func contextIndex(o *openBatch, t *thread, c schema.Context) uint32 {
	k := &t.inContext
	if k.generation != o.generation || k.Context != c {
		*k = knownContext{c, o.generation, o.Context(c)}
	}
	return k.index
}

func streamIndex(o *openBatch, t *thread, cudaStream uint64) uint32 {
	if t.cudaStream != cudaStream {
		t.cudaStream, t.cudaStreams = cudaStream, interned{}
	}
	c := &t.cudaStreams[o.Kind()]
	if c.generation != o.generation {
		c.generation, c.index = o.generation, o.CUDAStream(cudaStream)
	}
	return c.index
}

// contextGPU is the GPU of a context at a time; 0 while that is not known.
func (r *reader) contextGPU(o *openBatch, t *thread, context uint64, at schema.KTime) uint32 {
	d := &t.process.devices
	if at < d.moved {
		if ordinal, known := d.ordinal(context, at); known {
			return o.GPU(r.gpu(t.process, ordinal))
		}
	}
	if t.context != context || t.change != d.change {
		t.context, t.change, t.gpus = context, d.change, interned{}
	}
	c := &t.gpus[o.Kind()]
	if c.generation == o.generation {
		return c.index
	}
	ordinal, known := d.ordinal(context, at)
	switch {
	case known:
		c.index = o.GPU(r.gpu(t.process, ordinal))
	case t.process.Late:
		only := d.only(t.process.PID, r.cards, r.now)
		if only == nil {
			return 0
		}
		c.index = o.GPU(*only)
	default:
		return 0
	}
	c.generation = o.generation
	return c.index
}

func (r *reader) gpu(p *process, ordinal uint32) schema.GPU {
	return p.devices.gpu(ordinal, p.PID, r.cards)
}
