package producer

import (
	"math"
	"time"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/attach"
	"github.com/gputap/gputap/producer/pairing"
	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/schema"
)

// translator turns records into events of the open batches. The table learns from a record first; then the
// record becomes events with the help of the table; the batcher decides when a batch closes. One goroutine uses it.
type translator struct {
	known   *process.Table
	batches *batcher
	metrics *metrics
	wanted  [schema.NumKinds]bool
	now     schema.KTime          // when the round began
	through schema.KTime          // every record of a call that returned before it was translated
	counted [schema.NumOps]uint64 // events of this round
	calls   []process.Index       // in the dictionaries of the open batches, by call
	pairs   *pairing.Pairs        // nil if the kinds that it needs are not wanted
	lost    func() uint64         // records that Linux could not write, so far

	launches [256]cachedLaunch
	memories [16]cachedMemory
	tensors  [16]cachedTensor
}

func newTranslator(
	known *process.Table, batches *batcher, wanted attach.Features, m *metrics, lost func() uint64,
) *translator {
	t := &translator{
		known: known, batches: batches, metrics: m, calls: make([]process.Index, len(schema.Calls)), lost: lost,
	}
	for kind := range t.wanted {
		t.wanted[kind] = wanted.Wants(schema.Kind(kind))
	}
	if t.wanted[schema.KindLaunch] && t.wanted[schema.KindSync] {
		t.pairs = pairing.New(t.wanted[schema.KindCopy])
	}
	return t
}

// begin starts a round of reading.
func (t *translator) begin(now schema.KTime) {
	t.now = now
	t.known.BeginRound(now)
}

// submitTime is the longest time from the return of a call to its record in the ring: Linux may preempt the thread
// between the two, or halt a container that used up its CPU time.
const submitTime = schema.KTime(250 * time.Millisecond)

// finish ends a round, which read every record that was in a ring when it began. It adds the events of the pairs that
// the round completed, and the counted events to the metrics.
func (t *translator) finish() {
	t.addPairs()
	t.through = max(t.through, t.now-min(t.now, submitTime))
	for op, n := range t.counted {
		if n > 0 {
			t.metrics.events[op].Add(n)
		}
	}
	clear(t.counted[:])
}

// handle takes one record: learn, then translate. It borrows raw.
func (t *translator) handle(raw []byte) {
	head := bpf.As[bpf.Head](raw)
	ok := head != nil && int(head.Call) < len(schema.Calls) &&
		(head.Type == bpf.RecordThread || head.Type == attach.RecordTypes[head.Call])
	if ok {
		switch head.Type {
		case bpf.RecordLaunch:
			l := bpf.As[bpf.LaunchRecord](raw)
			if ok = l != nil; ok && !t.addCachedLaunch(l) {
				thread := t.known.LearnLaunch(l)
				t.graphMemory(l, thread)
				t.launch(l, thread)
			}
		case bpf.RecordMemory:
			m := bpf.As[bpf.MemoryRecord](raw)
			if ok = m != nil; ok && !t.addCachedMemory(m) {
				t.memory(t.known.LearnMemory(m))
			}
		case bpf.RecordCopy:
			c := bpf.As[bpf.CopyRecord](raw)
			if ok = c != nil; ok {
				t.copy(c)
			}
		case bpf.RecordTensor:
			r := bpf.As[bpf.TensorRecord](raw)
			if ok = r != nil; ok {
				t.tensor(r)
			}
		default:
			ok = t.handleRare(head.Type, raw)
		}
	}
	if !ok {
		t.metrics.malformed.Add(1)
	}
}

// handleRare takes a record of a type that needs no speed. It reports false if the record is too short for its type.
func (t *translator) handleRare(kind uint16, raw []byte) bool {
	switch kind {
	case bpf.RecordSync:
		return use(raw, t.sync)
	case bpf.RecordArray:
		return use(raw, t.array)
	case bpf.RecordEnd:
		return use(raw, t.end)
	case bpf.RecordThread:
		return use(raw, t.known.LearnThread)
	case bpf.RecordName:
		return use(raw, t.known.LearnName)
	case bpf.RecordDevice:
		return use(raw, t.known.LearnDevice)
	case bpf.RecordGraph:
		return use(raw, t.known.LearnGraph)
	case bpf.RecordCoverage:
		return use(raw, t.known.LearnCoverage)
	}
	return false
}

// use calls f with a record, and reports false if it is too short for its type.
func use[R any](raw []byte, f func(*R)) bool {
	r := bpf.As[R](raw)
	if r == nil {
		return false
	}
	f(r)
	return true
}

func (t *translator) memory(m process.MemoryCall) {
	call := &schema.Calls[m.Call]
	if call.Op == schema.OpStreamCreate || call.Op == schema.OpStreamDestroy {
		t.streamLife(m, call.Op)
		return
	}
	if !t.wanted[schema.KindMemory] {
		return
	}
	if m.Ptr == 0 && m.Result == 0 && (call.Op == schema.OpAlloc || call.Op == schema.OpCreate) {
		return // the pointer could not be read: Linux counted it as LossRead
	}
	var e schema.Memory
	setPerCall(&e, m.MemoryRecord)
	e.Ptr, e.Aux, e.Pool = m.Ptr, m.Aux, m.Pool // the table knows the Ptr of calls that name only a device
	switch call.Op {
	case schema.OpAlloc, schema.OpFree, schema.OpPrefetch:
		e.Aux = m.CUDAStream
	}
	generation := t.batches.open[schema.KindMemory].generation // addMemory may close the batch
	t.addMemory(&e, &m.Head, m.Thread, t.ref(schema.KindMemory, &m.Head),
		place{m.CUDAStream, m.Device, call.Class.OnHost()})
	t.cacheMemory(&m, generation, &e)
}

// setPerCall sets the columns that differ between calls of one thread in one place, also in a cached event. It sets
// field by field: of a literal the compiler makes a second copy, which waits for the first.
func setPerCall(e *schema.Memory, m *bpf.MemoryRecord) {
	e.Time, e.Duration, e.Result, e.Ptr, e.Bytes = schema.KTime(m.Time), m.Duration, m.Result, m.Ptr, m.Bytes
}

// place is the location of memory as a record gives it, besides the thread's context.
type place struct {
	cudaStream uint64
	device     int32
	onHost     bool
}

// addMemory completes a memory event by its thread, context and GPU, and adds it.
func (t *translator) addMemory(e *schema.Memory, h *bpf.Head, thread *process.Thread, call uint32, at place) {
	o := t.batches.open[schema.KindMemory]
	e.Time, e.Thread, e.Call = schema.KTime(h.Time), threadIndex(o, thread), call
	context := thread.Process.ContextOf(h, at.cudaStream)
	e.GPU = t.contextGPU(o, thread, context, e.Time)
	if context != 0 {
		e.Context = contextIndex(o, thread, schema.Context{Handle: context, GPU: e.GPU})
	}
	switch {
	case at.device >= process.MaxOrdinals:
		e.GPU = 0
	case at.device >= 0:
		e.GPU = o.GPU(t.known.GPU(thread.Process, uint32(at.device)))
	case at.device == bpf.DeviceNone, at.onHost:
		e.GPU = 0
	}
	o.AddMemory(e)
	t.added(schema.KindMemory, schema.Calls[h.Call].Op)
}

func (t *translator) array(a *bpf.ArrayRecord) {
	if !t.wanted[schema.KindMemory] || (a.Handle == 0 && a.Result == 0) {
		return
	}
	e := schema.Memory{Duration: a.Duration, Result: a.Result, Ptr: a.Handle, Bytes: arrayBytes(a)}
	t.addMemory(&e, &a.Head, t.known.Thread(&a.Head), t.ref(schema.KindMemory, &a.Head),
		place{device: bpf.DeviceOfContext})
}

// graphMemory adds a memory event for each block that the nodes of a launched graph allocate or free.
func (t *translator) graphMemory(l *bpf.LaunchRecord, thread *process.Thread) {
	call := &schema.Calls[l.Call]
	if !t.wanted[schema.KindMemory] || call.Op != schema.OpGraphLaunch || l.Capture != 0 {
		return
	}
	o := t.batches.open[schema.KindMemory]
	ref := schema.CallRef{Symbol: call.Symbol, Class: schema.ClassGraph}
	for _, b := range thread.Process.Executable(l.Func).Memory { // in order: an address may occur twice
		at := place{cudaStream: l.CUDAStream, device: b.Device}
		ref.Op = schema.OpAlloc
		if b.Bytes == 0 {
			ref.Op, at.device = schema.OpFree, bpf.DeviceOfContext
		}
		e := schema.Memory{Ptr: b.Ptr, Bytes: b.Bytes, Aux: l.CUDAStream}
		t.addMemory(&e, &l.Head, thread, o.Call(ref), at)
	}
}

func (t *translator) launch(l *bpf.LaunchRecord, thread *process.Thread) {
	if !t.wanted[schema.KindLaunch] {
		return
	}
	o, call, at := t.batches.open[schema.KindLaunch], &schema.Calls[l.Call], schema.KTime(l.Time)
	function := t.launchedIndex(o, thread.Process, l, call.Op) // it may close the batch
	e := schema.Launch{
		Time:   at,
		Thread: threadIndex(o, thread),
		GPU:    t.contextGPU(o, thread, thread.Process.ContextOf(&l.Head, l.CUDAStream), at),
		Shape: o.Shape(schema.LaunchShape{
			Call: t.ref(schema.KindLaunch, &l.Head), Func: function, Grid: l.Grid, Block: l.Block,
			SharedBytes: l.SharedBytes,
		}),
		CUDAStream: streamIndex(o, thread, l.CUDAStream),
	}
	paired := t.pairLaunch(l, thread)
	t.cacheLaunch(l, thread, o.generation, &e, paired)
	o.AddLaunch(&e)
	t.added(schema.KindLaunch, call.Op)
}

// launchedIndex is the index of the launched function: a kernel, a host function, or an executable graph.
func (t *translator) launchedIndex(o *openBatch, p *process.Process, l *bpf.LaunchRecord, op schema.Op) uint32 {
	switch op {
	case schema.OpGraphLaunch, schema.OpGraphUpload:
		return t.executableIndex(o, p, l.Func)
	case schema.OpHostFunc:
		return o.Func(schema.Func{Handle: l.Func})
	}
	return t.functionIndex(o, p, l.Func, schema.KTime(l.Time))
}

func (t *translator) functionIndex(o *openBatch, p *process.Process, handle uint64, at schema.KTime) uint32 {
	f := t.known.Function(p, handle, at)
	c := &f.Index[schema.KindLaunch]
	if c.Generation != o.generation {
		c.Generation, c.Index = o.generation, o.Func(f.Func)
	}
	return c.Index
}

// executableIndex also describes the nodes of the executable graph, once in each batch.
func (t *translator) executableIndex(o *openBatch, p *process.Process, handle uint64) uint32 {
	e := p.Executable(handle)
	c := &e.Index[schema.KindLaunch]
	if c.Generation == o.generation {
		return c.Index
	}
	t.batches.prepareGraph(graphKey{p, handle})
	c.Generation, c.Index = o.generation, o.Func(schema.Func{Handle: handle})
	g := schema.Graph{Func: c.Index, Partial: e.Partial}
	for kernel, n := range e.Kernels {
		if len(g.Nodes)%16 == 0 && t.batches.full(o) {
			g.Partial = true
			break
		}
		g.Nodes = append(g.Nodes, schema.Node{Func: t.functionIndex(o, p, kernel, t.now), Count: n})
	}
	o.Graph(g)
	return c.Index
}

func (t *translator) sync(s *bpf.SyncRecord) {
	thread := t.known.Thread(&s.Head)
	t.pairWait(s, thread)
	t.addSync(&s.Head, thread, &schema.Sync{
		Duration: s.Duration, Result: s.Result, CUDAEvent: s.Handle, Until: s.Until, Elapsed: elapsed(s.Elapsed),
	}, s.CUDAStream)
}

// streamLife adds the creation or destruction of a CUDA stream to the sync events.
func (t *translator) streamLife(m process.MemoryCall, op schema.Op) {
	cudaStream := m.CUDAStream
	if op == schema.OpStreamCreate {
		cudaStream = m.Ptr
	}
	t.addSync(&m.Head, m.Thread, &schema.Sync{Duration: m.Duration, Result: m.Result}, cudaStream)
}

func (t *translator) addSync(h *bpf.Head, thread *process.Thread, e *schema.Sync, cudaStream uint64) {
	if !t.wanted[schema.KindSync] {
		return
	}
	o := t.batches.open[schema.KindSync]
	e.Time, e.Thread, e.Call = schema.KTime(h.Time), threadIndex(o, thread), t.ref(schema.KindSync, h)
	e.GPU = t.contextGPU(o, thread, thread.Process.ContextOf(h, cudaStream), e.Time)
	e.CUDAStream = streamIndex(o, thread, cudaStream)
	o.AddSync(e)
	t.added(schema.KindSync, schema.Calls[h.Call].Op)
}

// elapsed converts CUDA's milliseconds to ns; 0 for an invalid time.
func elapsed(ms float32) uint64 {
	if ms > 0 && ms < math.MaxInt64/1e6 {
		return uint64(float64(ms) * 1e6)
	}
	return 0
}

// end adds a process's exec or exit to the memory events, whatever kinds are wanted: the process holds nothing from
// then on.
func (t *translator) end(e *bpf.ThreadRecord) {
	leader := t.known.LearnEnd(e)
	clear(t.launches[:]) // they refer to threads
	o := t.batches.open[schema.KindMemory]
	o.AddMemory(&schema.Memory{
		Time: schema.KTime(e.Time), Thread: threadIndex(o, leader), Call: t.ref(schema.KindMemory, &e.Head),
	})
	t.added(schema.KindMemory, schema.Calls[e.Call].Op)
}

// added counts an event that was added to the open batch of a kind.
func (t *translator) added(kind schema.Kind, op schema.Op) {
	t.counted[op]++
	t.batches.added(kind, t.now)
}
