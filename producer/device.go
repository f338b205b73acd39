package producer

import (
	"fmt"
	"slices"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// devices is which GPU each context and ordinal of one process is.
type devices struct {
	contexts  map[uint64]*placed // by context handle
	primaries map[uint32]uint64  // ordinal → its primary context
	streams   map[uint64]ofContext
	pools     map[uint64]uint32 // pool → ordinal
	ordinals  map[uint32]uint32 // device → ordinal, where they differ
	gpus      map[uint32]schema.GPU
	budget    *budget
	moved     schema.KTime // when the latest context's handle was given out anew, on another GPU
	change    uint32       // counts what was learned: what was looked up before is stale

	visible     string // CUDA_VISIBLE_DEVICES, as the image began
	visibleSet  bool
	visibleRead bool

	inferredAt schema.KTime
	inferred   *schema.GPU // the only GPU it can be using; nil unknown
}

// placed is the ordinal of a context, and that of the contexts which had its handle before: launches come
// from rings of their own, after what was told later.
type placed struct {
	ordinal uint32
	since   schema.KTime
	before  *placed // nil: none of late
}

// ofContext is the context of a CUDA stream, from when it was made on.
type ofContext struct {
	context uint64
	since   schema.KTime
}

func newDevices() devices {
	return devices{
		contexts: map[uint64]*placed{}, primaries: map[uint32]uint64{}, streams: map[uint64]ofContext{}, pools: map[uint64]uint32{},
		ordinals: map[uint32]uint32{}, gpus: map[uint32]schema.GPU{},
	}
}

// ordinal is the GPU of a context at a time.
func (d *devices) ordinal(context uint64, at schema.KTime) (ordinal uint32, known bool) {
	p := d.contexts[context]
	if p == nil {
		return 0, false
	}
	for at < p.since && p.before != nil {
		p = p.before
	}
	return p.ordinal, true
}

// place notes which GPU a context is of.
func (d *devices) place(context uint64, ordinal uint32, at schema.KTime) {
	old := d.contexts[context]
	if old != nil && old.ordinal == ordinal {
		return
	}
	d.contexts[context] = &placed{ordinal, at, old}
	d.change++
	if old == nil {
		return
	}
	d.moved = max(d.moved, at)
	for n := 1; old.before != nil && old.since+readBy > at && n < mostBefore; n++ {
		old = old.before
	}
	old.before = nil
}

// context notes what a call says about contexts, and fills in which context it was about when it names
// only a device.
func (d *devices) context(m *bpf.MemoryRecord, op schema.Op) {
	switch op {
	case schema.OpContextCreate, schema.OpContextRetain:
		ordinal, known := uint32(m.Device), m.Device >= 0
		if !known {
			ordinal, known = d.ordinal(m.Aux, schema.KTime(m.Time))
		}
		if m.Result != 0 || m.Ptr == 0 || !known || ordinal >= mostOrdinals {
			return
		}
		d.budget.grow(handleBytes)
		d.place(m.Ptr, ordinal, schema.KTime(m.Time))
		if op == schema.OpContextRetain {
			d.primaries[ordinal] = m.Ptr
		}
		m.Device = int32(ordinal)
	case schema.OpContextRelease, schema.OpContextReset:
		m.Ptr = d.primaries[uint32(m.Device)]
	case schema.OpContextDestroy:
		if ordinal, known := d.ordinal(m.Ptr, schema.KTime(m.Time)); known {
			m.Device = int32(ordinal)
		}
	}
}

// pool notes which GPU a pool is of, and fills in that of what is allocated from it.
func (d *devices) pool(m *bpf.MemoryRecord, op schema.Op) {
	switch {
	case m.Result != 0:
	case op == schema.OpPoolCreate && m.Device >= 0:
		d.pools[m.Ptr] = uint32(m.Device)
		d.budget.grow(handleBytes)
	case op == schema.OpPoolDestroy:
		delete(d.pools, m.Ptr)
	case op == schema.OpAlloc && m.Pool != 0:
		if ordinal, known := d.pools[m.Pool]; known {
			m.Device = int32(ordinal)
		}
	}
}

// of is the ordinal of a call's GPU, bpf.DeviceOfContext while it is unknown.
func (d *devices) of(m *bpf.MemoryRecord) int32 {
	if ordinal, known := d.ordinal(d.current(&m.Head, m.CUDAStream), schema.KTime(m.Time)); known && m.Device == bpf.DeviceOfContext {
		return int32(ordinal)
	}
	return m.Device
}

// stream notes which context a CUDA stream is of.
func (d *devices) stream(m *bpf.MemoryRecord, op schema.Op) {
	switch {
	case m.Result != 0:
	case op == schema.OpStreamCreate && m.CUDAContext != 0:
		d.budget.grow(handleBytes)
		d.streams[m.Ptr] = ofContext{m.CUDAContext, schema.KTime(m.Time)}
	case op == schema.OpStreamDestroy:
		delete(d.streams, m.CUDAStream)
	}
}

// perThreadStream is the highest of the numbers that stand for a context's default CUDA streams.
const perThreadStream = 2

// current is the context that a call works in: that of its CUDA stream, whatever is current, else the thread's.
func (d *devices) current(h *bpf.Head, cudaStream uint64) uint64 {
	if cudaStream <= perThreadStream {
		return h.CUDAContext
	}
	if s, known := d.streams[cudaStream]; known && h.Time >= uint64(s.since) {
		return s.context
	}
	return h.CUDAContext
}

// learn notes what an ordinal is. Of both versions of the UUID the second is the more exact: it names
// the part of a card that the process was given.
func (d *devices) learn(r *bpf.DeviceRecord, host []card) {
	if r.Device >= mostOrdinals {
		return
	}
	gpu := d.gpus[r.Device]
	gpu.Ordinal = r.Device
	switch call := &schema.Calls[r.Call]; {
	case call.Shape == schema.ShapeDevice:
		if r.Device != r.Ordinal && r.Ordinal < mostOrdinals {
			d.ordinals[r.Device] = r.Ordinal
		}
		return
	case call.Shape == schema.ShapeUUID:
		uuid := uuidText("GPU-", r.UUID)
		isCard := len(host) == 0 || slices.ContainsFunc(host, func(c card) bool { return c.UUID == uuid })
		if !isCard {
			uuid = uuidText("MIG-", r.UUID)
		} else if len(gpu.UUID) > 4 && gpu.UUID[:4] == "MIG-" {
			return
		}
		gpu.UUID = uuid
	case call.Symbol == "cuDeviceGetPCIBusId":
		i := slices.IndexFunc(host, func(c card) bool { return c.Bus == busAddress(text(r.Text[:])) })
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
		d.change++
	}
}

func uuidText(prefix string, u [16]byte) string {
	return fmt.Sprintf("%s%x-%x-%x-%x-%x", prefix, u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// given are the cards of the process in its own numbering; none when its environment could not be read.
func (d *devices) given(pid uint32, host []card) []card {
	d.readVisible(pid)
	if !d.visibleRead {
		return nil
	}
	return visible(host, d.visible, d.visibleSet)
}

// readVisible is called as soon as a process is known: it may be gone before its GPU is asked for.
func (d *devices) readVisible(pid uint32) {
	if !d.visibleRead {
		d.visible, d.visibleSet, d.visibleRead = environment(pid, "CUDA_VISIBLE_DEVICES")
	}
}

// gpu is the GPU of an ordinal. One that the program never named is concluded from what the process
// was given.
func (d *devices) gpu(ordinal uint32, pid uint32, host []card) schema.GPU {
	g, known := d.gpus[ordinal]
	if !known {
		g = schema.GPU{Ordinal: ordinal}
		at := ordinal
		if o, differs := d.ordinals[ordinal]; differs {
			at = o
		}
		if given := d.given(pid, host); int(at) < len(given) {
			g.UUID, g.Inferred = given[at].UUID, true
		}
		d.gpus[ordinal] = g
	}
	return g
}

// inferAgain is how long a process is left alone that has no or many GPUs open.
const inferAgain = 1_000_000_000

// only is the GPU of a process that ran before gputap and whose context is unknown: the one card that
// it has open, when it is one.
func (d *devices) only(pid uint32, host []card, now schema.KTime) *schema.GPU {
	if d.inferred != nil || now < d.inferredAt+inferAgain {
		return d.inferred
	}
	d.inferredAt = now
	minors := openMinors(pid)
	if len(minors) != 1 {
		return nil
	}
	i := slices.IndexFunc(host, func(c card) bool { return c.minor == minors[0] })
	if i < 0 {
		return nil
	}
	d.inferred = &schema.GPU{UUID: host[i].UUID, Inferred: true}
	if at := slices.IndexFunc(d.given(pid, host), func(c card) bool { return c.minor == minors[0] }); at > 0 {
		d.inferred.Ordinal = uint32(at)
	}
	return d.inferred
}
