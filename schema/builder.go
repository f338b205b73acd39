package schema

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
)

// dictionary interns values: equal values get equal indices, in order of first use.
type dictionary[T comparable] struct {
	index  map[T]uint32
	values []T
}

// intern returns the index of v. text is the bytes of the strings in v.
func intern[T comparable](b *Builder, d *dictionary[T], v T, text int) uint32 {
	if i, ok := d.index[v]; ok {
		return i
	}
	if d.index == nil {
		d.index = map[T]uint32{}
	}
	i := uint32(len(d.values))
	d.index[v] = i
	d.values = append(d.values, v)
	b.strings += text
	return i
}

func (d *dictionary[T]) reset() {
	clear(d.index)
	d.values = d.values[:0]
}

// Builder collects the events of one batch and encodes it. Use NewBuilder. One goroutine uses a Builder at a time.
// Adding an event does not allocate once the Builder has grown.
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
	contexts    dictionary[Context]
	cudaStreams dictionary[uint64]
	graphs      []Graph
	nodes       []Node // of all graphs
	stacks      []Stack
	stackIndex  map[string]uint32
	frames      int    // of all stacks
	stackKey    []byte // of the stack at hand

	Older []uint64 // see Batch.Older; Reset clears it

	Origin string // rank batches only: see Batch.Origin. Reset keeps it.

	// Heartbeats only. Reset keeps them.
	Libraries []Library
	Coverage  []Coverage
	Ends      []End
	Linux     string
	Producer  string

	buf     bytes.Buffer
	writer  writer
	scratch []byte
}

// NewBuilder returns an empty Builder for batches of one kind.
func NewBuilder(kind Kind) *Builder {
	b := &Builder{kind: kind, scratch: []byte{}} // nil would encode as nil where a column has no data
	b.writer.enc = msgpack.NewEncoder(&b.buf)
	b.Reset()
	return b
}

// Reset empties the Builder and keeps its memory, and the fields of a heartbeat.
func (b *Builder) Reset() {
	b.events, b.strings, b.Older = 0, 0, nil
	for _, id := range kindColumns[b.kind] {
		b.columns[id].reset()
	}
	b.processes.reset()
	b.threads.reset()
	b.gpus.reset()
	b.calls.reset()
	b.funcs.reset()
	b.shapes.reset()
	b.contexts.reset()
	b.cudaStreams.reset()
	b.graphs, b.nodes = b.graphs[:0], b.nodes[:0]
	clear(b.stackIndex)
	b.stacks, b.frames = emptied(b.stacks), 0
}

// Kind returns the kind of the batch.
func (b *Builder) Kind() Kind { return b.kind }

// Events returns the number of events added.
func (b *Builder) Events() int { return b.events }

// Strings returns the bytes of all dictionary strings. A caller that sees it unchanged need not call Size again.
func (b *Builder) Strings() int { return b.strings }

// First returns the earliest entry time added, 0 without events.
func (b *Builder) First() KTime {
	if b.events == 0 {
		return 0
	}
	return KTime(b.columns[colTime].min)
}

// Last returns the latest entry time added, 0 without events.
func (b *Builder) Last() KTime {
	if b.events == 0 {
		return 0
	}
	return KTime(b.columns[colTime].max)
}

// Process interns a process and returns its index: equal values have equal indices in this batch.
func (b *Builder) Process(p Process) uint32 {
	return intern(b, &b.processes, p,
		len(p.Comm)+len(p.Exe)+len(p.Container)+len(p.User)+len(p.Cgroup)+len(p.Pod)+len(p.Unit)+len(p.Job))
}

// Thread interns a thread; see Process.
func (b *Builder) Thread(t Thread) uint32 { return intern(b, &b.threads, t, len(t.Comm)) }

// GPU interns a device and returns 1 + its index, the value of the GPU column.
func (b *Builder) GPU(g GPU) uint32 {
	return 1 + intern(b, &b.gpus, g, len(g.UUID)+len(g.Name)+len(g.Bus))
}

// Call interns a call; see Process.
func (b *Builder) Call(c CallRef) uint32 { return intern(b, &b.calls, c, len(c.Symbol)) }

// Func interns a CUDA kernel or executable graph; see Process.
func (b *Builder) Func(f Func) uint32 { return intern(b, &b.funcs, f, len(f.Name)) }

// Context interns a CUDA context and returns 1 + its index, the value of the context column.
func (b *Builder) Context(c Context) uint32 { return 1 + intern(b, &b.contexts, c, 0) }

// Shape interns a launch shape; see Process.
func (b *Builder) Shape(s LaunchShape) uint32 { return intern(b, &b.shapes, s, 0) }

// CUDAStream interns a CUDA stream handle; see Process.
func (b *Builder) CUDAStream(handle uint64) uint32 { return intern(b, &b.cudaStreams, handle, 0) }

// Stack interns a call stack and returns 1 + its index, the value of the stack column. It copies the frames. It returns
// 0, unknown, if a message cannot hold the stack beside those that it has.
func (b *Builder) Stack(s Stack) uint32 {
	key := binary.AppendUvarint(b.stackKey[:0], uint64(len(s.Frames)))
	for _, f := range s.Frames {
		key = append(binary.AppendUvarint(key, uint64(len(f))), f...)
	}
	key = append(key, s.Name...)
	b.stackKey = key
	if i, ok := b.stackIndex[string(key)]; ok {
		return 1 + i
	}
	if b.frames+len(s.Frames) > maxListed || len(b.stacks) == maxRows {
		return 0
	}
	if b.stackIndex == nil {
		b.stackIndex = map[string]uint32{}
	}
	b.stackIndex[string(key)] = uint32(len(b.stacks))
	b.stacks = append(b.stacks, Stack{slices.Clone(s.Frames), s.Name})
	b.frames += len(s.Frames)
	b.strings += listSize(s.Frames) + len(s.Name)
	return uint32(len(b.stacks))
}

// Graph adds the nodes of an executable graph. Call it once in each batch that launches the graph. It copies the nodes.
// Above the limit of a message it drops nodes and marks the graph as partial.
func (b *Builder) Graph(g Graph) {
	if room := maxListed/2 - len(b.nodes); len(g.Nodes) > room {
		g.Nodes, g.Partial = g.Nodes[:room], true
	}
	first := len(b.nodes)
	b.nodes = append(b.nodes, g.Nodes...)
	b.graphs = append(b.graphs, Graph{Func: g.Func, Partial: g.Partial, Nodes: b.nodes[first:]})
	b.strings += 16 + 10*len(g.Nodes)
}

// Size returns an upper bound of the bytes that Encode would write now, for cluster and host names of up to 255 bytes
// each. The constant of each row covers its numbers, words and msgpack headers.
func (b *Builder) Size() int {
	size := 1024 + b.strings + 65*len(b.processes.values) + 16*len(b.threads.values) + 31*len(b.gpus.values) +
		52*len(b.calls.values) + 17*len(b.funcs.values) + 48*len(b.shapes.values) + 15*len(b.contexts.values) +
		9*len(b.cudaStreams.values) + 9*len(b.stacks) + 5*len(b.Older) + len(b.Origin)
	for _, id := range kindColumns[b.kind] {
		size += 24 + int(b.columns[id].width())*b.events
	}
	if b.kind != KindHost {
		return size
	}
	size += len(b.Linux) + len(b.Producer) + 26*len(b.Ends)
	for i := range b.Libraries {
		size += 36 + len(b.Libraries[i].Path) + listSize(b.Libraries[i].Absent) + listSize(b.Libraries[i].Failed)
	}
	for i := range b.Coverage {
		size += 24 + listSize(b.Coverage[i].Outside)
	}
	return size
}

// listSize returns an upper bound of the encoded bytes of a list of strings.
func listSize(list []string) (size int) {
	for _, s := range list {
		size += 3 + len(s)
	}
	return size
}
