package process

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// Graph lists the effects of one launch of a graph, as far as gputap saw the graph being built.
type Graph struct {
	Kernels map[uint64]uint32 // function handle → nodes
	Memory  []Block           // allocations and frees, in the order of the nodes
	Partial bool              // some node is unknown
}

// Block is memory that a node allocates; with Bytes 0, memory that it frees.
type Block struct {
	Ptr, Bytes uint64
	Device     int32 // ordinal, or bpf.DeviceOfContext
}

// Executable is an executable graph.
type Executable struct {
	Graph
	Index Index
}

// graphs are the graphs of one process; handles are its own.
type graphs struct {
	captures    map[uint32]*Graph // by number of the capture
	graphs      map[uint64]*Graph
	executables map[uint64]*Executable
	late        bool // the process built others before gputap saw it
	budget      *budget
}

func newGraphs(late bool, b *budget) graphs {
	return graphs{
		captures: map[uint32]*Graph{}, graphs: map[uint64]*Graph{}, executables: map[uint64]*Executable{}, late: late,
		budget: b,
	}
}

func newGraph() *Graph { return &Graph{Kernels: map[uint64]uint32{}} }

// at returns the graph of a handle. cuGraphCreate has no probe: an unknown handle is a new, empty graph, but in a late
// process it may be any graph.
func (g *graphs) at(handle uint64) *Graph {
	return findOrAdd(g.graphs, handle, g.late, g.budget)
}

// findOrAdd returns the graph of a key; an unknown key gets an empty one.
func findOrAdd[K comparable](in map[K]*Graph, key K, partial bool, b *budget) *Graph {
	known := in[key]
	if known == nil {
		known = newGraph()
		known.Partial = partial
		in[key] = known
		b.add(graphBytes)
	}
	return known
}

// apply notes a change of a graph or capture.
func (g *graphs) apply(r *bpf.GraphRecord) {
	g.budget.add(nodeBytes)
	switch schema.Calls[r.Call].Shape {
	case schema.ShapeCaptureBegin:
		g.budget.add(graphBytes)
		g.captures[r.Capture] = newGraph()
	case schema.ShapeCaptureInto:
		g.captures[r.Capture] = g.at(r.Graph)
	case schema.ShapeCaptureEnd:
		captured := g.recorded(r.Capture)
		delete(g.captures, r.Capture)
		if r.Graph != 0 { // 0: it failed
			g.graphs[r.Graph] = captured
		}
	case schema.ShapeKernelNode:
		g.addNode(r, nodeKernel)
	case schema.ShapeAllocNode:
		g.addNode(r, nodeMemAlloc)
	case schema.ShapeFreeNode:
		g.addNode(r, nodeMemFree)
	case schema.ShapeChildNode:
		g.addCopy(g.at(r.Graph), r.Made)
	case schema.ShapeAnyNode, schema.ShapeAnyNode2:
		g.addNode(r, r.Made)
	case schema.ShapeGraphGone:
		delete(g.graphs, r.Graph)
		delete(g.executables, r.Graph)
	case schema.ShapeGraphUpdate:
		g.executables[r.Made] = g.instantiate(r.Graph)
	case schema.ShapeGraphPair:
		if schema.Calls[r.Call].Op == schema.OpExecutable {
			g.executables[r.Made] = g.instantiate(r.Graph)
			return
		}
		clone := newGraph()
		g.addCopy(clone, r.Graph)
		g.graphs[r.Made] = clone
	}
}

// Node types of cuGraphAddNode that gputap counts. A conditional node decides on the GPU which nodes run.
const (
	nodeKernel      = 0
	nodeGraph       = 4
	nodeMemAlloc    = 10
	nodeMemFree     = 11
	nodeConditional = 13
)

func (g *graphs) addNode(r *bpf.GraphRecord, nodeType uint64) {
	in := g.at(r.Graph)
	switch nodeType {
	case nodeKernel:
		in.addKernel(r.Func, 1)
	case nodeGraph:
		g.addCopy(in, r.Ptr)
	case nodeMemAlloc:
		in.addBlock(Block{r.Ptr, r.Bytes, int32(r.Func)})
	case nodeMemFree:
		in.addBlock(Block{Ptr: r.Ptr})
	case nodeConditional:
		in.Partial = true
	}
}

// recorded returns the graph that a capture records into. It is partial if the begin of the capture was lost.
func (g *graphs) recorded(capture uint32) *Graph {
	return findOrAdd(g.captures, capture, true, g.budget)
}

// recordLaunch notes a launch that a capture turned into a node. A launched graph becomes a child.
func (g *graphs) recordLaunch(l *bpf.LaunchRecord) {
	switch schema.Calls[l.Call].Op {
	case schema.OpLaunch:
		g.recorded(l.Capture).addKernel(l.Func, 1)
		g.budget.add(nodeBytes)
	case schema.OpGraphLaunch:
		child := g.Executable(l.Func)
		g.recorded(l.Capture).addAll(&child.Graph)
		g.budget.add(child.bytes())
	}
}

// addCopy adds the present nodes of another graph.
func (g *graphs) addCopy(to *Graph, handle uint64) {
	from := g.at(handle)
	to.addAll(from)
	g.budget.add(from.bytes())
}

// recordMemory notes an allocation or free that a capture turned into a node.
func (g *graphs) recordMemory(capture uint32, b Block) {
	g.budget.add(nodeBytes)
	g.recorded(capture).addBlock(b)
}

// instantiate makes an executable graph; it does not change with its source.
func (g *graphs) instantiate(handle uint64) *Executable {
	e := &Executable{Graph: *newGraph()}
	g.addCopy(&e.Graph, handle)
	return e
}

// Executable returns the executable graph of a handle. If gputap did not see its instantiation, it is partial and
// empty.
func (g *graphs) Executable(handle uint64) *Executable {
	known := g.executables[handle]
	if known == nil {
		known = &Executable{Graph: Graph{Partial: true}}
		g.executables[handle] = known
		g.budget.add(graphBytes)
	}
	return known
}

func (g *Graph) addKernel(handle uint64, n uint32) {
	if _, known := g.Kernels[handle]; !known && len(g.Kernels) >= maxKernels {
		g.Partial = true
		return
	}
	g.Kernels[handle] += n
}

func (g *Graph) addBlock(b Block) {
	if len(g.Memory) >= maxBlocks {
		g.Partial = true
		return
	}
	g.Memory = append(g.Memory, b)
}

func (g *Graph) addAll(other *Graph) {
	for handle, n := range other.Kernels {
		g.addKernel(handle, n)
	}
	for _, b := range other.Memory {
		g.addBlock(b)
	}
	g.Partial = g.Partial || other.Partial
}
