package process

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// devices maps the contexts and ordinals of one process to GPUs.
type devices struct {
	contexts  map[uint64]*contextDevice // by context handle
	primaries map[uint32]uint64         // ordinal → its primary context
	streams   map[uint64]streamContext
	pools     map[uint64]uint32 // pool → ordinal
	ordinals  map[uint32]uint32 // device → ordinal, where they differ
	gpus      map[uint32]schema.GPU
	sizes     map[uint32]uint64 // ordinal → memory, as the driver told the process
	budget    *budget

	ContextsMoved schema.KTime // when a context's handle was last reused on another GPU: earlier answers differ
	DeviceVersion uint32       // changes with everything learned: earlier answers are stale

	visible []Card // in the process's own numbering, by its environment at the start of the image

	inferredAt schema.KTime
	inferred   *schema.GPU // the only GPU that the process has open; nil unknown
}

// contextDevice is the ordinal of a context, and of the contexts that had its handle before: launches are read from
// other rings, after later control records.
type contextDevice struct {
	ordinal uint32
	since   schema.KTime
	before  *contextDevice // nil: none recently
}

// streamContext is the context of a CUDA stream, valid since its creation.
type streamContext struct {
	context uint64
	since   schema.KTime
}

func newDevices(b *budget) devices {
	return devices{
		budget:   b,
		contexts: map[uint64]*contextDevice{}, primaries: map[uint32]uint64{}, streams: map[uint64]streamContext{},
		pools:    map[uint64]uint32{},
		ordinals: map[uint32]uint32{}, gpus: map[uint32]schema.GPU{}, sizes: map[uint32]uint64{},
	}
}

// Ordinal returns the ordinal of a context at a time.
func (d *devices) Ordinal(context uint64, at schema.KTime) (ordinal uint32, known bool) {
	p := d.contexts[context]
	if p == nil {
		return 0, false
	}
	for at < p.since && p.before != nil {
		p = p.before
	}
	return p.ordinal, true
}

// setOrdinal notes the GPU of a context.
func (d *devices) setOrdinal(context uint64, ordinal uint32, at schema.KTime) {
	old := d.contexts[context]
	if old != nil && old.ordinal == ordinal {
		return
	}
	d.contexts[context] = &contextDevice{ordinal, at, old}
	d.DeviceVersion++
	if old == nil {
		return
	}
	d.ContextsMoved = max(d.ContextsMoved, at)
	for n := 1; old.before != nil && old.since+readDelay > at && n < maxBefore; n++ {
		old = old.before
	}
	old.before = nil
}

// contextMade notes a new context and returns the ordinal of its GPU; unchanged from the record when the context has
// none or its GPU is unknown.
func (d *devices) contextMade(m *bpf.MemoryRecord, op schema.Op) int32 {
	ordinal, known := uint32(m.Device), m.Device >= 0
	if !known {
		ordinal, known = d.Ordinal(m.Aux, schema.KTime(m.Time))
	}
	if m.Result != 0 || m.Ptr == 0 || !known || ordinal >= MaxOrdinals {
		return m.Device
	}
	d.budget.add(handleBytes)
	d.setOrdinal(m.Ptr, ordinal, schema.KTime(m.Time))
	if op == schema.OpContextRetain {
		d.primaries[ordinal] = m.Ptr
	}
	return int32(ordinal)
}

// deviceOf returns the ordinal of a call's GPU, bpf.DeviceOfContext while it is unknown.
func (d *devices) deviceOf(c *MemoryCall) int32 {
	context := d.ContextOf(&c.Head, c.CUDAStream)
	if ordinal, known := d.Ordinal(context, schema.KTime(c.Time)); known && c.Device == bpf.DeviceOfContext {
		return int32(ordinal)
	}
	return c.Device
}

// handleMade notes the GPU of a new pool, or the context of a new CUDA stream; or it removes them.
func (d *devices) handleMade(m *bpf.MemoryRecord, op schema.Op) {
	d.budget.add(handleBytes)
	switch {
	case op == schema.OpPoolCreate && m.Device >= 0:
		d.pools[m.Ptr] = uint32(m.Device)
	case op == schema.OpPoolDestroy:
		delete(d.pools, m.Ptr)
	case op == schema.OpStreamCreate && m.CUDAContext != 0:
		d.streams[m.Ptr] = streamContext{m.CUDAContext, schema.KTime(m.Time)}
	case op == schema.OpStreamDestroy:
		delete(d.streams, m.CUDAStream)
	}
}

// perThreadStream is the highest handle that stands for a default CUDA stream of a context.
const perThreadStream = 2

// ContextOf returns the context of a call: that of its CUDA stream, else the current one of the thread.
func (d *devices) ContextOf(h *bpf.Head, cudaStream uint64) uint64 {
	if cudaStream <= perThreadStream {
		return h.CUDAContext
	}
	if s, known := d.streams[cudaStream]; known && h.Time >= uint64(s.since) {
		return s.context
	}
	return h.CUDAContext
}

// identify notes which GPU an ordinal is. cuDeviceGetUuid_v2 is the more exact of both calls: it names the part of a
// card that the process may use.
func (d *devices) identify(r *bpf.DeviceRecord, host []Card) {
	if r.Device >= MaxOrdinals {
		return
	}
	gpu := d.gpus[r.Device]
	gpu.Ordinal = r.Device
	switch call := &schema.Calls[r.Call]; {
	case call.Shape == schema.ShapeDevice:
		if r.Device != r.Ordinal && r.Ordinal < MaxOrdinals {
			d.ordinals[r.Device] = r.Ordinal
		}
		return
	case call.Shape == schema.ShapeUUID:
		uuid := uuidText("GPU-", r.UUID)
		isCard := len(host) == 0 || slices.ContainsFunc(host, func(c Card) bool { return c.UUID == uuid })
		if !isCard {
			uuid = uuidText("MIG-", r.UUID)
		} else if len(gpu.UUID) > 4 && gpu.UUID[:4] == "MIG-" {
			return
		}
		gpu.UUID = uuid
	case call.Symbol == "cuDeviceGetPCIBusId":
		i := slices.IndexFunc(host, func(c Card) bool { return c.Bus == busAddress(unix.ByteSliceToString(r.Text[:])) })
		if i < 0 || (gpu.UUID != "" && !gpu.Inferred) {
			return
		}
		gpu.UUID = host[i].UUID
	default:
		return
	}
	gpu.Inferred = false
	if d.gpus[r.Device] != gpu {
		d.gpus[r.Device] = gpu
		d.DeviceVersion++
	}
}

func uuidText(prefix string, u [16]byte) string {
	return fmt.Sprintf("%s%x-%x-%x-%x-%x", prefix, u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// gpu returns the GPU of an ordinal. If the program never asked for its UUID, it is inferred from the cards that the
// process may use.
func (d *devices) gpu(ordinal uint32) schema.GPU {
	g, known := d.gpus[ordinal]
	if !known {
		g = schema.GPU{Ordinal: ordinal}
		index := ordinal
		if o, differs := d.ordinals[ordinal]; differs {
			index = o
		}
		if int(index) < len(d.visible) {
			g.UUID, g.Inferred = d.visible[index].UUID, true
		}
		d.gpus[ordinal] = g
	}
	return g
}

// inferInterval is how long gputap waits before it looks again at a process that has no or many GPUs open.
const inferInterval = 1_000_000_000

// DevicesSettled reports whether the answers about a call's context and CUDA stream hold for all later calls, until
// the version changes.
func (d *devices) DevicesSettled(at schema.KTime, cudaStream uint64) bool {
	return d.ContextsMoved <= at && d.streams[cudaStream].since <= at
}

// GPU returns the GPU of an ordinal of a process. The driver told its memory to the process, or to another process.
func (t *Table) GPU(p *Process, ordinal uint32) schema.GPU {
	gpu := p.gpu(ordinal)
	gpu.Bytes = cmp.Or(p.sizes[ordinal], t.sizes[gpu.UUID])
	return gpu
}

// learnSize notes the memory of the GPU of an ordinal, if bytes is not 0. Once its UUID is certain, other processes of
// the GPU have the same answer: the largest, because programs can be limited to a part of the memory.
func (t *Table) learnSize(p *Process, ordinal uint32, bytes uint64) {
	d := &p.devices
	if ordinal >= MaxOrdinals {
		return
	}
	if bytes != 0 && d.sizes[ordinal] != bytes {
		d.sizes[ordinal] = bytes
		d.DeviceVersion++
	}
	gpu, bytes := d.gpus[ordinal], d.sizes[ordinal]
	if gpu.UUID == "" || gpu.Inferred || bytes <= t.sizes[gpu.UUID] {
		return
	}
	putBounded(t.sizes, maxSizes, gpu.UUID, bytes)
	for i := range t.Cards {
		if t.Cards[i].UUID == gpu.UUID {
			t.Cards[i].Bytes = bytes
		}
	}
}

// InferredGPU returns the GPU of a late process whose context is unknown: the only card that it has open. It returns
// nil when the process has no or several cards open.
func (t *Table) InferredGPU(p *Process) *schema.GPU {
	if !p.Late {
		return nil
	}
	d := &p.devices
	if d.inferred != nil {
		d.inferred.Bytes = t.sizes[d.inferred.UUID]
		return d.inferred
	}
	if t.now < d.inferredAt+inferInterval {
		return nil
	}
	d.inferredAt = t.now
	minors := openMinors(p.PID)
	if len(minors) != 1 {
		return nil
	}
	isOpen := func(c Card) bool { return c.Minor == minors[0] }
	i := slices.IndexFunc(t.Cards, isOpen)
	if i < 0 {
		return nil
	}
	d.inferred = &schema.GPU{UUID: t.Cards[i].UUID, Inferred: true, Bytes: t.Cards[i].Bytes}
	if at := slices.IndexFunc(d.visible, isOpen); at > 0 {
		d.inferred.Ordinal = uint32(at)
	}
	return d.inferred
}
