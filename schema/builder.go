package schema

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"
)

// dictionary gives equal values equal indices, in order of first use.
type dictionary[T comparable] struct {
	index  map[T]uint32
	values []T
}

// intern gives the index of v and says whether v is new.
func (d *dictionary[T]) intern(v T) (index uint32, added bool) {
	if i, ok := d.index[v]; ok {
		return i, false
	}
	if d.index == nil {
		d.index = map[T]uint32{}
	}
	i := uint32(len(d.values))
	d.index[v] = i
	d.values = append(d.values, v)
	return i, true
}

func (d *dictionary[T]) reset() {
	clear(d.index)
	d.values = d.values[:0]
}

// Builder gathers the events of one batch and encodes it. The zero Builder is not usable; one
// goroutine uses it at a time. Adding an event does not allocate once the Builder has grown.
type Builder struct {
	kind    Kind
	events  int
	strings int // bytes of all dictionary strings, for Size
	columns [numColumns]columnBuilder

	processes   dictionary[Process]
	threads     dictionary[Thread]
	gpus        dictionary[GPU]
	calls       dictionary[CallRef]
	funcs       dictionary[Func]
	shapes      dictionary[LaunchShape]
	cudaStreams dictionary[uint64]

	Libraries []Library // for a heartbeat
	Linux     string
	Producer  string

	buf     bytes.Buffer
	enc     *msgpack.Encoder
	scratch []byte
}

// NewBuilder returns an empty Builder for batches of one kind.
func NewBuilder(kind Kind) *Builder {
	b := &Builder{kind: kind, scratch: []byte{}} // nil would encode as nil where a column has no data
	b.enc = msgpack.NewEncoder(&b.buf)
	b.Reset()
	return b
}

// Reset empties the Builder and keeps its memory. A heartbeat's Libraries, Linux and Producer stay.
func (b *Builder) Reset() {
	b.events, b.strings = 0, 0
	for _, id := range kindColumns[b.kind] {
		b.columns[id].reset()
	}
	b.processes.reset()
	b.threads.reset()
	b.gpus.reset()
	b.calls.reset()
	b.funcs.reset()
	b.shapes.reset()
	b.cudaStreams.reset()
}

// Kind is the kind of batch that is built.
func (b *Builder) Kind() Kind { return b.kind }

// Events is the number of events added.
func (b *Builder) Events() int { return b.events }

// First is the earliest entry time added, 0 without events.
func (b *Builder) First() KTime {
	if b.events == 0 {
		return 0
	}
	return KTime(b.columns[colTime].min)
}

// Process, Thread, GPU, Call, Func, Shape and CUDAStream give a value its index in this batch.
func (b *Builder) Process(p Process) uint32 {
	i, added := b.processes.intern(p)
	if added {
		b.strings += len(p.Comm) + len(p.Exe) + len(p.Container)
	}
	return i
}

// Thread interns a thread; see Process.
func (b *Builder) Thread(t Thread) uint32 {
	i, added := b.threads.intern(t)
	if added {
		b.strings += len(t.Comm)
	}
	return i
}

// GPU interns a device and returns what the gpu column holds: 1 + its index.
func (b *Builder) GPU(g GPU) uint32 {
	i, added := b.gpus.intern(g)
	if added {
		b.strings += len(g.UUID)
	}
	return 1 + i
}

// Call interns the part of a table row that travels.
func (b *Builder) Call(c *Call) uint32 {
	i, added := b.calls.intern(CallRef{Symbol: c.Symbol, Op: c.Op, Class: c.Class, Direction: c.Direction})
	if added {
		b.strings += len(c.Symbol)
	}
	return i
}

// Func interns a kernel function or graph.
func (b *Builder) Func(f Func) uint32 {
	i, added := b.funcs.intern(f)
	if added {
		b.strings += len(f.Name)
	}
	return i
}

// Shape interns a launch shape.
func (b *Builder) Shape(s LaunchShape) uint32 {
	i, _ := b.shapes.intern(s)
	return i
}

// CUDAStream interns a CUDA stream handle.
func (b *Builder) CUDAStream(handle uint64) uint32 {
	i, _ := b.cudaStreams.intern(handle)
	return i
}

// AddMemory adds an event to a memory batch.
func (b *Builder) AddMemory(e *Memory) {
	c := &b.columns
	c[colTime].add(uint64(e.Time))
	c[colDuration].add(e.Duration)
	c[colThread].add(uint64(e.Thread))
	c[colCall].add(uint64(e.Call))
	c[colGPU].add(uint64(e.GPU))
	c[colResult].add(uint64(e.Result))
	c[colPtr].add(e.Ptr)
	c[colBytes].add(e.Bytes)
	c[colAux].add(e.Aux)
	b.events++
}

// AddLaunch adds an event to a launch batch.
func (b *Builder) AddLaunch(e *Launch) {
	c := &b.columns
	c[colTime].add(uint64(e.Time))
	c[colThread].add(uint64(e.Thread))
	c[colGPU].add(uint64(e.GPU))
	c[colShape].add(uint64(e.Shape))
	c[colCUDAStream].add(uint64(e.CUDAStream))
	b.events++
}

// AddCopy adds an event to a copy batch.
func (b *Builder) AddCopy(e *Copy) {
	c := &b.columns
	c[colTime].add(uint64(e.Time))
	c[colDuration].add(e.Duration)
	c[colThread].add(uint64(e.Thread))
	c[colCall].add(uint64(e.Call))
	c[colGPU].add(uint64(e.GPU))
	c[colResult].add(uint64(e.Result))
	c[colBytes].add(e.Bytes)
	c[colDst].add(e.Dst)
	c[colSrc].add(e.Src)
	c[colCUDAStream].add(uint64(e.CUDAStream))
	b.events++
}

// Size is an upper bound of the bytes that Encode would write now, with a cluster and a host name of
// up to 255 bytes each. What a row costs beside its strings is what its numbers and words can take.
func (b *Builder) Size() int {
	size := 1024 + b.strings + 32*len(b.processes.values) + 16*len(b.threads.values) + 16*len(b.gpus.values) +
		40*len(b.calls.values) + 16*len(b.funcs.values) + 48*len(b.shapes.values) + 9*len(b.cudaStreams.values)
	for _, id := range kindColumns[b.kind] {
		size += 24 + int(b.columns[id].width())*b.events
	}
	if b.kind != KindHost {
		return size
	}
	size += len(b.Linux) + len(b.Producer)
	for i := range b.Libraries {
		size += 32 + len(b.Libraries[i].Path)
		for _, symbol := range b.Libraries[i].Absent {
			size += 3 + len(symbol)
		}
	}
	return size
}
