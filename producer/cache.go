package producer

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/schema"
)

// Programs repeat their calls, so the translator caches translations. A cached translation is valid while the table's
// version and the open batch are the same.

// cachedMemory is an allocation or free and its translation. A later record reuses it if it is by the same thread in
// the same place; only the columns of setPerCall differ.
type cachedMemory struct {
	bpf.MemoryRecord
	version    uint64
	generation uint64
	event      schema.Memory
}

func (c *cachedMemory) matches(m *bpf.MemoryRecord) bool {
	return c.Call == m.Call && c.TID == m.TID && c.ThreadStart == m.ThreadStart && c.CUDAContext == m.CUDAContext &&
		c.CUDAStream == m.CUDAStream && c.Device == m.Device && c.Time <= m.Time
}

// cachedLaunch is a launch and its translation. A later record reuses it if only the time differs.
type cachedLaunch struct {
	bpf.LaunchRecord
	version    uint64
	generation uint64
	event      schema.Launch
	paired     paired
}

func (c *cachedLaunch) matches(l *bpf.LaunchRecord) bool {
	return c.Func == l.Func && c.Grid == l.Grid && c.Block == l.Block && c.SharedBytes == l.SharedBytes &&
		c.CUDAStream == l.CUDAStream && c.CUDAContext == l.CUDAContext && c.TID == l.TID &&
		c.ThreadStart == l.ThreadStart && c.Call == l.Call && c.Capture == l.Capture && c.Time <= l.Time
}

func (t *translator) memorySlot(m *bpf.MemoryRecord) *cachedMemory {
	return &t.memories[(m.TID+uint32(m.Call))%uint32(len(t.memories))]
}

func (t *translator) launchSlot(l *bpf.LaunchRecord) *cachedLaunch {
	hash := uint32(l.Func>>4)*31 + l.TID*17 + l.Grid[0]*7 + l.Grid[1]*3 + l.Block[0]
	return &t.launches[hash%uint32(len(t.launches))]
}

// addCachedMemory adds the event of a record by a cached translation, and reports whether there was one.
func (t *translator) addCachedMemory(m *bpf.MemoryRecord) bool {
	o, c, op := t.batches.open[schema.KindMemory], t.memorySlot(m), schema.Calls[m.Call].Op
	if m.Ptr == 0 || c.version != t.known.Version() || c.generation != o.generation || !process.Plain(m, op) ||
		!c.matches(m) {
		return false
	}
	setPerCall(&c.event, m)
	o.AddMemory(&c.event)
	t.added(schema.KindMemory, op)
	return true
}

// cacheMemory stores a translation, if it holds for later records. generation is that of the batch with the event.
func (t *translator) cacheMemory(m *process.MemoryCall, generation uint64, e *schema.Memory) {
	op := schema.Calls[m.Call].Op
	if !process.Plain(m.MemoryRecord, op) || op == schema.OpFree && m.Thread.Process.HasManaged() ||
		!m.Thread.Process.DevicesSettled(schema.KTime(m.Time), m.CUDAStream) || !t.known.Current(m.Thread) {
		return
	}
	*t.memorySlot(m.MemoryRecord) = cachedMemory{*m.MemoryRecord, t.known.Version(), generation, *e}
}

// addCachedLaunch adds the event of a record by a cached translation, and reports whether there was one.
func (t *translator) addCachedLaunch(l *bpf.LaunchRecord) bool {
	o, c := t.batches.open[schema.KindLaunch], t.launchSlot(l)
	if c.version != t.known.Version() || c.generation != o.generation || !c.matches(l) {
		return false
	}
	c.event.Time = schema.KTime(l.Time)
	if c.paired.thread != nil {
		t.pairs.Launch(c.paired.thread, c.paired.stream, l)
	}
	o.AddLaunch(&c.event)
	t.added(schema.KindLaunch, schema.OpLaunch)
	return true
}

// cacheLaunch stores a translation, if it holds for later records.
func (t *translator) cacheLaunch(
	l *bpf.LaunchRecord, thread *process.Thread, generation uint64, e *schema.Launch, noted paired,
) {
	p, at := thread.Process, schema.KTime(l.Time)
	if schema.Calls[l.Call].Op != schema.OpLaunch || l.Capture != 0 || !p.FunctionSettled(l.Func, at) ||
		!p.DevicesSettled(at, l.CUDAStream) || !t.known.Current(thread) {
		return
	}
	*t.launchSlot(l) = cachedLaunch{*l, t.known.Version(), generation, *e, noted}
}

// cachedTensor is the translation of a block of PyTorch's allocator. A later block reuses it if it is by the same
// thread on the same GPU.
type cachedTensor struct {
	bpf.Head
	device     int32
	version    uint64
	generation uint64
	event      schema.Tensor
	free       uint32 // index of the call when it takes a block back
}

// tensor adds the event of a block.
func (t *translator) tensor(r *bpf.TensorRecord) {
	if !t.wanted[schema.KindTensor] {
		return
	}
	o, c := t.batches.open[schema.KindTensor], &t.tensors[(r.TID+uint32(r.Device))%uint32(len(t.tensors))]
	if c.version != t.known.Version() || c.generation != o.generation || c.TID != r.TID ||
		c.ThreadStart != r.ThreadStart || c.device != r.Device || c.Time > r.Time {
		t.cacheTensor(c, r, o)
	}
	e := c.event
	e.Time, e.Ptr, e.Allocated, e.Reserved = schema.KTime(r.Time), r.Ptr, r.Allocated, r.Reserved
	op := schema.OpBlockAlloc
	e.Bytes = uint64(r.Bytes)
	if r.Bytes < 0 {
		op, e.Call, e.Bytes = schema.OpBlockFree, c.free, uint64(-r.Bytes)
	}
	o.AddTensor(&e)
	t.added(schema.KindTensor, op)
}

// cacheTensor translates the fields that all blocks of a thread on a GPU share.
func (t *translator) cacheTensor(c *cachedTensor, r *bpf.TensorRecord, o *openBatch) {
	thread := t.known.Thread(&r.Head)
	*c = cachedTensor{Head: r.Head, device: r.Device, generation: o.generation}
	if t.known.Current(thread) {
		c.version = t.known.Version()
	}
	free := schema.Calls[r.Call].Ref()
	free.Op = schema.OpBlockFree
	c.free = o.Call(free)
	c.event.Thread, c.event.Call = threadIndex(o, thread), t.ref(schema.KindTensor, &r.Head)
	if r.Device >= 0 && r.Device < process.MaxOrdinals {
		c.event.GPU = o.GPU(t.known.GPU(thread.Process, uint32(r.Device)))
	}
}
