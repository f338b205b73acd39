package producer

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// graph is what one launch of a graph would do, as far as it was seen being made.
type graph struct {
	kernels map[uint64]uint32 // function handle → nodes
	memory  []block           // what its nodes allocate and free, in the order in which they were made
	partial bool              // something was added that is not understood, or unseen
}

// block is memory that a node allocates; without bytes, that it frees.
type block struct {
	ptr, bytes uint64
	device     int32 // ordinal, or bpf.DeviceOfContext
}

// executable is a graph made ready to run.
type executable struct {
	interned
	graph
}

// graphs is what one process made; handles are its own.
type graphs struct {
	captures    map[uint32]*graph // by number of the capture
	graphs      map[uint64]*graph
	executables map[uint64]*executable
	late        bool // others were made unseen
	budget      *budget

	told           map[uint64]bool // handles whose graph is in the open launch batch
	toldGeneration uint64
}

func newGraphs(late bool) graphs {
	return graphs{captures: map[uint32]*graph{}, graphs: map[uint64]*graph{}, executables: map[uint64]*executable{}, late: late, told: map[uint64]bool{}}
}

func newGraph() *graph { return &graph{kernels: map[uint64]uint32{}} }

// at is the graph of a handle. cuGraphCreate is not probed: an unknown handle is a new, empty graph,
// but of a process that ran before it may be any.
func (g *graphs) at(handle uint64) *graph {
	known := g.graphs[handle]
	if known == nil {
		known = newGraph()
		known.partial = g.late
		g.graphs[handle] = known
		g.budget.grow(graphBytes)
	}
	return known
}

// apply notes what a call did to graphs.
func (g *graphs) apply(r *bpf.GraphRecord) {
	g.budget.grow(nodeBytes)
	switch schema.Calls[r.Call].Shape {
	case schema.ShapeCaptureBegin:
		g.budget.grow(graphBytes)
		g.captures[r.Capture] = newGraph()
	case schema.ShapeCaptureInto:
		g.captures[r.Capture] = g.at(r.Graph)
	case schema.ShapeCaptureEnd:
		captured := g.captures[r.Capture]
		delete(g.captures, r.Capture)
		if captured == nil {
			captured = newGraph()
			captured.partial = true
		}
		if r.Graph != 0 { // 0: it failed
			g.graphs[r.Graph] = captured
		}
	case schema.ShapeKernelNode:
		g.at(r.Graph).kernel(r.Func, 1)
	case schema.ShapeAllocNode:
		g.at(r.Graph).alloc(r.Ptr, r.Bytes, int32(r.Func))
	case schema.ShapeFreeNode:
		g.at(r.Graph).free(r.Ptr)
	case schema.ShapeChildNode:
		g.copied(g.at(r.Graph), r.Made)
	case schema.ShapeAnyNode, schema.ShapeAnyNode2:
		g.node(r)
	case schema.ShapeGraphGone:
		delete(g.graphs, r.Graph)
		delete(g.executables, r.Graph)
	case schema.ShapeGraphUpdate:
		g.executables[r.Made] = g.ready(r.Graph)
	case schema.ShapeGraphPair:
		if schema.Calls[r.Call].Op == schema.OpExecutable {
			g.executables[r.Made] = g.ready(r.Graph)
			return
		}
		clone := newGraph()
		g.copied(clone, r.Graph)
		g.graphs[r.Made] = clone
	}
}

// Node types of cuGraphAddNode whose launch does what gputap counts; the rest do not, but for those
// that decide on the GPU what runs.
const (
	nodeKernel      = 0
	nodeGraph       = 4
	nodeMemAlloc    = 10
	nodeMemFree     = 11
	nodeConditional = 13
)

func (g *graphs) node(r *bpf.GraphRecord) {
	in := g.at(r.Graph)
	switch r.Made {
	case nodeKernel:
		in.kernel(r.Func, 1)
	case nodeGraph:
		g.copied(in, r.Ptr)
	case nodeMemAlloc:
		in.alloc(r.Ptr, r.Bytes, int32(r.Func))
	case nodeMemFree:
		in.free(r.Ptr)
	case nodeConditional:
		in.partial = true
	}
}

// recorded is the graph that a capture records into.
func (g *graphs) recorded(capture uint32) *graph {
	captured := g.captures[capture]
	if captured == nil { // its begin was lost
		captured = newGraph()
		captured.partial = true
		g.captures[capture] = captured
		g.budget.grow(graphBytes)
	}
	return captured
}

// launched notes a launch that a capture turned into a node.
func (g *graphs) launched(capture uint32, function uint64) {
	g.recorded(capture).kernel(function, 1)
	g.budget.grow(nodeBytes)
}

// launchedGraph notes the launch of a graph that a capture turned into a child.
func (g *graphs) launchedGraph(capture uint32, handle uint64) {
	child := g.executable(handle)
	g.recorded(capture).add(&child.graph)
	g.budget.grow(child.bytes())
}

// copied adds to a graph what another has now.
func (g *graphs) copied(to *graph, handle uint64) {
	from := g.at(handle)
	to.add(from)
	g.budget.grow(from.bytes())
}

// recordMemory notes an allocation or free that a capture turned into a node.
func (g *graphs) recordMemory(m *bpf.MemoryRecord, op schema.Op, device int32) {
	switch op {
	case schema.OpAlloc:
		g.budget.grow(nodeBytes)
		g.recorded(m.Capture).alloc(m.Ptr, m.Bytes, device)
	case schema.OpFree:
		g.budget.grow(nodeBytes)
		g.recorded(m.Capture).free(m.Ptr)
	}
}

func (g *graphs) ready(handle uint64) *executable {
	e := &executable{graph: *newGraph()}
	g.copied(&e.graph, handle)
	return e
}

// executable is what a launched handle runs; unseen when it was made, it is partial and empty.
func (g *graphs) executable(handle uint64) *executable {
	known := g.executables[handle]
	if known == nil {
		known = &executable{graph: graph{partial: true}}
		g.executables[handle] = known
		g.budget.grow(graphBytes)
	}
	return known
}

func (g *graph) kernel(handle uint64, n uint32) {
	if _, known := g.kernels[handle]; !known && len(g.kernels) >= mostKernels {
		g.partial = true
		return
	}
	g.kernels[handle] += n
}

func (g *graph) alloc(ptr, bytes uint64, device int32) { g.remember(block{ptr, bytes, device}) }

func (g *graph) free(ptr uint64) { g.remember(block{ptr: ptr}) }

func (g *graph) remember(b block) {
	if len(g.memory) >= mostBlocks {
		g.partial = true
		return
	}
	g.memory = append(g.memory, b)
}

func (g *graph) add(other *graph) {
	for handle, n := range other.kernels {
		g.kernel(handle, n)
	}
	for _, b := range other.memory {
		g.remember(b)
	}
	g.partial = g.partial || other.partial
}

// mayTell reports whether a batch may say what a handle runs: one batch cannot say it of two graphs that
// had the handle one after the other.
func (g *graphs) mayTell(handle, generation uint64) bool {
	if g.toldGeneration != generation {
		g.toldGeneration = generation
		clear(g.told)
	}
	return !g.told[handle]
}
