package producer

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// The translation of records into events: the only place that knows both.

func (r *reader) memory(m *bpf.MemoryRecord) {
	if m.Ptr == 0 && m.Result == 0 && needsPointer(schema.CallID(m.Call)) {
		return // the pointer could not be read: counted as LossRead where it happened
	}
	o := r.batches.open[schema.KindMemory]
	t := r.known.thread(&m.Head)
	e := schema.Memory{
		Time: schema.KTime(m.Time), Duration: m.Duration, Thread: r.threadIndex(o, t), Call: r.callIndex(o, m.Call),
		GPU: r.memoryGPU(o, t, m), Result: m.Result, Ptr: m.Ptr, Bytes: m.Bytes,
	}
	switch call := &schema.Calls[m.Call]; {
	case call.Op == schema.OpMap, call.CUDAStream != 0:
		e.Aux = m.Aux
	}
	o.AddMemory(&e)
	r.added(schema.KindMemory, schema.Calls[m.Call].Op)
}

func needsPointer(id schema.CallID) bool {
	op := schema.Calls[id].Op
	return op == schema.OpAlloc || op == schema.OpCreate
}

func (r *reader) memoryGPU(o *openBatch, t *thread, m *bpf.MemoryRecord) uint32 {
	switch {
	case m.Device >= 0:
		return r.gpuIndex(o, t.process, uint32(m.Device))
	case m.Device == bpf.DeviceHost, schema.Calls[m.Call].Class == schema.ClassPinned:
		return 0
	}
	return r.contextGPU(o, t, m.CUDAContext)
}

func (r *reader) launch(l *bpf.LaunchRecord) {
	o := r.batches.open[schema.KindLaunch]
	t := r.known.thread(&l.Head)
	f := t.process.function(l.Func)
	if c := &f.interned[schema.KindLaunch]; c.generation != o.generation {
		c.generation, c.index = o.generation, o.Func(f.Func)
	}
	o.AddLaunch(&schema.Launch{
		Time:   schema.KTime(l.Time),
		Thread: r.threadIndex(o, t),
		GPU:    r.contextGPU(o, t, l.CUDAContext),
		Shape: o.Shape(schema.LaunchShape{
			Call: r.callIndex(o, l.Call), Func: f.interned[schema.KindLaunch].index, Grid: l.Grid, Block: l.Block,
			SharedBytes: l.SharedBytes,
		}),
		CUDAStream: o.CUDAStream(l.CUDAStream),
	})
	r.added(schema.KindLaunch, schema.Calls[l.Call].Op)
}

func (r *reader) copy(c *bpf.CopyRecord) {
	o := r.batches.open[schema.KindCopy]
	t := r.known.thread(&c.Head)
	cudaStream := uint64(0)
	if schema.Calls[c.Call].CUDAStream != 0 {
		cudaStream = c.CUDAStream
	}
	o.AddCopy(&schema.Copy{
		Time: schema.KTime(c.Time), Duration: c.Duration, Thread: r.threadIndex(o, t), Call: r.callIndex(o, c.Call),
		GPU: r.contextGPU(o, t, c.CUDAContext), Result: c.Result, Bytes: c.Bytes, Dst: c.Dst, Src: c.Src,
		CUDAStream: o.CUDAStream(cudaStream),
	})
	r.added(schema.KindCopy, schema.Calls[c.Call].Op)
}

// end puts a process's exec or exit among the memory events: what it held is gone from here on.
func (r *reader) end(e *bpf.ThreadRecord) {
	o := r.batches.open[schema.KindMemory]
	leader := r.known.end(e, r.now)
	o.AddMemory(&schema.Memory{Time: schema.KTime(e.Time), Thread: r.threadIndex(o, leader), Call: r.callIndex(o, e.Call)})
	r.added(schema.KindMemory, schema.Calls[e.Call].Op)
}

func (r *reader) added(kind schema.Kind, op schema.Op) {
	r.metrics.events[op].Add(1)
	r.batches.added(kind, r.now)
}

func (r *reader) callIndex(o *openBatch, id uint16) uint32 {
	c := &r.calls[o.Kind()][id]
	if c.generation != o.generation {
		c.generation, c.index = o.generation, o.Call(&schema.Calls[id])
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

// contextGPU is the GPU of a thread's current context; 0 while the context's device is not known.
func (r *reader) contextGPU(o *openBatch, t *thread, context uint64) uint32 {
	c := &t.gpus[o.Kind()]
	if c.generation == o.generation && t.context == context {
		return c.index
	}
	if t.context != context {
		t.context, t.gpus = context, interned{}
	}
	ordinal, known := t.process.contexts[context]
	if !known {
		return 0
	}
	c.generation, c.index = o.generation, r.gpuIndex(o, t.process, ordinal)
	return c.index
}

func (r *reader) gpuIndex(o *openBatch, p *process, ordinal uint32) uint32 {
	return o.GPU(schema.GPU{UUID: p.uuids[ordinal], Ordinal: ordinal})
}
