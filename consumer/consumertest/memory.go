package consumertest

import (
	"slices"
	"testing"

	"github.com/gputap/gputap/schema"
)

// Host builds the memory batches of one host and numbers them. Header is the header of the next batch.
type Host struct {
	Header schema.Header

	tb      testing.TB
	builder *schema.Builder
}

// Memory returns a Host without events.
func Memory(tb testing.TB, hostname string) *Host {
	return &Host{
		Header:  schema.Header{Cluster: "test", Host: hostname, BootID: "boot-1", Run: 1, ClockOffset: 1_700_000_000e9},
		tb:      tb,
		builder: schema.NewBuilder(schema.KindMemory),
	}
}

// Older sets the list of running older processes in the next batch.
func (h *Host) Older(pids ...uint64) { h.builder.Older = append([]uint64{}, pids...) }

// Process is one process of a Host. Its fields apply to the events that are added next. Methods with the name of a call
// add a successful one.
type Process struct {
	schema.Process
	GPU     *schema.GPU // nil: unknown
	Context uint64      // handle of the current CUDA context; 0: unknown

	host *Host
}

// Process returns a process with this start time.
func (h *Host) Process(pid uint32, start schema.KTime, comm string) *Process {
	return &Process{Process: schema.Process{PID: pid, Start: start, Comm: comm}, host: h}
}

func (p *Process) Alloc(tid uint32, ptr, bytes uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuMemAlloc_v2", tid, schema.Memory{Time: at, Duration: duration, Ptr: ptr, Bytes: bytes})
}

func (p *Process) Free(tid uint32, ptr uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuMemFree_v2", tid, schema.Memory{Time: at, Duration: duration, Ptr: ptr})
}

func (p *Process) Create(tid uint32, handle, bytes uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuMemCreate", tid, schema.Memory{Time: at, Duration: duration, Ptr: handle, Bytes: bytes})
}

func (p *Process) Release(tid uint32, handle uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuMemRelease", tid, schema.Memory{Time: at, Duration: duration, Ptr: handle})
}

func (p *Process) Map(tid uint32, ptr, bytes, handle uint64, at schema.KTime, duration uint64) *Process {
	m := schema.Memory{Time: at, Duration: duration, Ptr: ptr, Bytes: bytes, Aux: handle}
	return p.Call("cuMemMap", tid, m)
}

func (p *Process) Unmap(tid uint32, ptr, bytes uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuMemUnmap", tid, schema.Memory{Time: at, Duration: duration, Ptr: ptr, Bytes: bytes})
}

// Retain adds a successful cuMemRetainAllocationHandle of the memory mapped at ptr.
func (p *Process) Retain(tid uint32, handle, ptr uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuMemRetainAllocationHandle", tid,
		schema.Memory{Time: at, Duration: duration, Ptr: handle, Aux: ptr})
}

func (p *Process) Import(tid uint32, handle, token uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuMemImportFromShareableHandle", tid,
		schema.Memory{Time: at, Duration: duration, Ptr: handle, Aux: token})
}

func (p *Process) Export(tid uint32, ptr, token uint64, at schema.KTime) *Process {
	return p.Call("cuIpcGetMemHandle", tid, schema.Memory{Time: at, Duration: 1, Ptr: ptr, Aux: token})
}

func (p *Process) Open(tid uint32, ptr, token uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuIpcOpenMemHandle", tid, schema.Memory{Time: at, Duration: duration, Ptr: ptr, Aux: token})
}

func (p *Process) Close(tid uint32, ptr uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuIpcCloseMemHandle", tid, schema.Memory{Time: at, Duration: duration, Ptr: ptr})
}

func (p *Process) RetainContext(handle uint64, at schema.KTime) *Process {
	return p.Call("cuDevicePrimaryCtxRetain", p.PID, schema.Memory{Time: at, Duration: 1, Ptr: handle})
}

func (p *Process) ReleaseContext(handle uint64, at schema.KTime) *Process {
	return p.Call("cuDevicePrimaryCtxRelease_v2", p.PID, schema.Memory{Time: at, Duration: 1, Ptr: handle})
}

func (p *Process) ResetContext(handle uint64, at schema.KTime) *Process {
	return p.Call("cuDevicePrimaryCtxReset_v2", p.PID, schema.Memory{Time: at, Duration: 1, Ptr: handle})
}

func (p *Process) CreateContext(handle uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuCtxCreate_v4", p.PID, schema.Memory{Time: at, Duration: duration, Ptr: handle})
}

func (p *Process) DestroyContext(handle uint64, at schema.KTime, duration uint64) *Process {
	return p.Call("cuCtxDestroy_v2", p.PID, schema.Memory{Time: at, Duration: duration, Ptr: handle})
}

// In sets the CUDA context of the events that are added next.
func (p *Process) In(context uint64) *Process {
	p.Context = context
	return p
}

func (p *Process) AllocPool(tid uint32, ptr, bytes, pool uint64, at schema.KTime) *Process {
	return p.Call("cuMemAllocFromPoolAsync", tid, schema.Memory{Time: at, Duration: 1, Ptr: ptr, Bytes: bytes,
		Pool: pool})
}

func (p *Process) PoolInfo(pool, attribute, value uint64, at schema.KTime) *Process {
	return p.Call("cuMemPoolGetAttribute", p.PID, schema.Memory{Time: at, Duration: 1, Ptr: pool, Aux: attribute,
		Bytes: value})
}

func (p *Process) MemInfo(used, total uint64, at schema.KTime) *Process {
	return p.Call("cuMemGetInfo_v2", p.PID, schema.Memory{Time: at, Duration: 1, Bytes: used, Aux: total})
}

// Record adds a call of a symbol that was recorded into a graph.
func (p *Process) Record(symbol string, tid uint32, m schema.Memory) *Process {
	return p.Add(&schema.Call{Symbol: symbol, Op: schema.OpRecord, Class: schema.ClassPool}, tid, m)
}

// Exec adds a process_exec, which renames the process.
func (p *Process) Exec(comm string, at schema.KTime) *Process {
	p.Comm = comm
	return p.Call("process_exec", p.PID, schema.Memory{Time: at})
}

// Exit adds a process_exit.
func (p *Process) Exit(at schema.KTime) *Process {
	return p.Call("process_exit", p.PID, schema.Memory{Time: at})
}

// Fail adds a failed call.
func (p *Process) Fail(symbol string, tid, result uint32, bytes uint64, at schema.KTime) *Process {
	return p.Call(symbol, tid, schema.Memory{Time: at, Duration: 1, Result: result, Bytes: bytes})
}

// Call adds an event of a symbol of the table. It sets the thread, call and GPU of m.
func (p *Process) Call(symbol string, tid uint32, m schema.Memory) *Process {
	i := slices.IndexFunc(schema.Calls, func(c schema.Call) bool { return c.Symbol == symbol })
	if i < 0 {
		p.host.tb.Fatalf("no call %q in the table", symbol)
	}
	return p.Add(&schema.Calls[i], tid, m)
}

// Add adds an event of any call, also of one outside the table.
func (p *Process) Add(c *schema.Call, tid uint32, m schema.Memory) *Process {
	b := p.host.builder
	m.Thread = b.Thread(schema.Thread{Process: b.Process(p.Process), TID: tid, Comm: p.Comm})
	m.Call = b.Call(c.Ref())
	if p.GPU != nil {
		m.GPU = b.GPU(*p.GPU)
	}
	if p.Context != 0 {
		m.Context = b.Context(schema.Context{Handle: p.Context, GPU: m.GPU})
	}
	b.AddMemory(&m)
	return p
}

// Batch returns the batch of the events added since the previous one, possibly none.
func (h *Host) Batch() *schema.Batch { return Decode(h.tb, h.Message()) }

// Message returns the batch in its wire form.
func (h *Host) Message() []byte {
	h.Header.Seq++
	defer h.builder.Reset()
	return slices.Clone(h.builder.Encode(&h.Header))
}

// Heartbeat returns a heartbeat of the host. Folds do not look at its seq. The heartbeat completes all kinds up to the
// time through, if there is one.
func (h *Host) Heartbeat(through ...schema.KTime) *schema.Batch {
	b := schema.NewBuilder(schema.KindHost)
	for _, at := range through {
		b.Ends = endsAt(h.Header.Seq, at)
	}
	return Decode(h.tb, slices.Clone(b.Encode(&h.Header)))
}

// endsAt returns the ends of all kinds at one seq.
func endsAt(seq uint64, through schema.KTime) (ends []schema.End) {
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		ends = append(ends, schema.End{Kind: kind, Seq: seq, Through: through})
	}
	return ends
}

// Decode decodes one message.
func Decode(tb testing.TB, message []byte) *schema.Batch {
	b := &schema.Batch{}
	if err := schema.NewDecoder().Decode(message, b); err != nil {
		tb.Fatalf("decode: %v", err)
	}
	return b
}
