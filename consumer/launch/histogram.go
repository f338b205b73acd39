package launch

import (
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Config configures a Histogram. The zero Config is usable.
type Config struct {
	Keep       time.Duration // a process is forgotten this long after its last launch; 0: never
	MaxKernels int           // kernel names per process; 0: 10,000
}

// Histogram counts the launches of all processes.
type Histogram struct {
	maxKernels int
	grid       process.Grid[state, uint64] // launches by process, GPU and launch shape
	threads    []uint64                    // columns of the current batch
	shapes     []uint64
	gpus       []uint64
	times      []uint64
	calls      []uint64
	graphs     []int          // of the current batch, by function: 1 + index into Batch.Graphs; 0: none
	runs       map[run]uint64 // launches of graphs in the current batch
	order      []run          // keys of runs in order of first use

	mu        sync.Mutex
	processes *process.Table[state]
	clocks    map[snapshot.HostID]*clock
	names     names
	workloads process.Series[process.Workload, launches, *launches]
	byName    byName
	sizes     process.Series[program, sizes, *sizes]

	out snapshot.Writer
}

// launches are the counts of one workload.
type launches struct {
	kernels    uint64 // including those inside graphs
	fromGraphs uint64 // the part of kernels launched by graphs
	graphs     uint64
	partial    uint64 // the part of graphs with unknown kernels
}

// Add adds more.
func (l *launches) Add(more *launches) {
	l.kernels += more.kernels
	l.fromGraphs += more.fromGraphs
	l.graphs += more.graphs
	l.partial += more.partial
}

// New returns an empty Histogram.
func New(cfg Config) *Histogram {
	h := &Histogram{
		maxKernels: cfg.MaxKernels,
		runs:       map[run]uint64{},
		processes:  process.NewTable(process.Silent[state](cfg.Keep)),
		names:      names{},
		workloads:  process.NewSeries[process.Workload, launches](1),
		byName:     newByName(),
		clocks:     map[snapshot.HostID]*clock{},
		sizes:      process.NewSeries[program, sizes](process.MaxSeries - process.MaxHistograms + 1),
	}
	if h.maxKernels <= 0 {
		h.maxKernels = 10_000
	}
	return h
}

// Name returns the fold's name.
func (h *Histogram) Name() string { return "launch" }

// Kinds returns the kinds of batches that the fold reads.
func (h *Histogram) Kinds() []schema.Kind {
	return []schema.Kind{schema.KindLaunch, schema.KindSync, schema.KindHost}
}

// Apply counts one batch. It ignores heartbeats.
func (h *Histogram) Apply(b *schema.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch b.Kind {
	case schema.KindLaunch:
		h.applyLaunches(b)
	case schema.KindSync:
		h.applyGaps(b)
	}
	if b.Events > 0 {
		h.advance(&b.Header, b.Last)
	}
	return nil
}

// live extends the life of a process to the end of a batch that names it.
func live(b *schema.Batch, e *process.Entry[state]) {
	s := &e.State
	if s.last == 0 {
		if s.began = e.ID.Start; e.Late || s.began == 0 {
			s.began = b.First
		}
	}
	s.last = max(s.last, b.Last)
}

// applyLaunches sums the events by process, GPU and launch shape and adds the sums. If there are too many
// combinations, or the batch has events of several minutes, it adds event by event.
func (h *Histogram) applyLaunches(b *schema.Batch) {
	entries := h.processes.Threads(b)
	for _, e := range entries {
		live(b, e)
	}
	h.threads = b.Thread().Values(h.threads, b.Events)
	h.shapes = b.Shape().Values(h.shapes, b.Events)
	h.gpus = b.GPU().Values(h.gpus, b.Events)
	h.index(b)
	if minute := minuteOf(b.First); minute == minuteOf(b.Last) && h.grid.Load(b, entries, len(b.Shapes)) {
		h.sum(b)
		at, to := process.Cell[state]{}, target{}
		for next, n := range h.grid.All() {
			if next.Entry != at.Entry || next.GPU != at.GPU {
				to = h.target(b, next.Entry, next.GPU)
			}
			at = next
			h.add(b, to, &b.Shapes[at.Row], n, minute)
		}
		h.grid.Release()
	} else {
		h.times = b.Time().Values(h.times, b.Events)
		for i, t := range h.threads {
			h.add(b, h.target(b, entries[t], int(h.gpus[i])), &b.Shapes[h.shapes[i]], 1,
				minuteOf(schema.KTime(h.times[i])))
		}
	}
	h.runGraphs(b)
}

// sum counts the events in the grid, with two column reads and one increment per event if all ran on one GPU.
func (h *Histogram) sum(b *schema.Batch) {
	cells, base, rows := h.grid.Cells, h.grid.Base, len(b.Shapes)
	if b.GPU().Width == 0 {
		gpu := int(b.GPU().Base) * rows
		for i, t := range h.threads {
			cells[gpu+base[t]+int(h.shapes[i])]++
		}
		return
	}
	for i, t := range h.threads {
		cells[base[t]+int(h.gpus[i])*rows+int(h.shapes[i])]++
	}
}

// Forget removes a host with its processes and series, between two batches. Counts by name and counts of comm="other"
// stay.
func (h *Histogram) Forget(cluster, host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := snapshot.HostID{Cluster: cluster, Host: host}
	h.processes.Forget(id)
	h.workloads.Forget(id)
	delete(h.clocks, id)
}

// target is where the launches of one process on one GPU count.
type target struct {
	entry    *process.Entry[state]
	workload *launches
	comm     *comm
	sizes    *sizes
}

func (h *Histogram) target(b *schema.Batch, e *process.Entry[state], gpu int) target {
	w := process.NewWorkload(b, &e.Info, gpu)
	return target{e, h.workloads.At(w), h.byName.comm(w.Comm), h.sizes.At(program(w.Comm))}
}

// add counts n launches of one shape in one minute.
func (h *Histogram) add(b *schema.Batch, to target, shape *schema.LaunchShape, n, minute uint64) {
	call, s := &b.Calls[shape.Call], &to.entry.State
	count := to.entry.Calls.Find(call)
	if call.Op == schema.OpRecord {
		count.Recorded += n
		s.recorded += n
		return
	}
	count.OK += n
	switch call.Op {
	case schema.OpLaunch:
		to.sizes.observe(shape, n)
		if k := h.kernel(b, to, shape.Func, n, minute); k != nil {
			k.addShape(shape, n, minute)
		}
	case schema.OpGraphLaunch:
		s.graphs.add(n, minute)
		to.workload.graphs += n
		r := run{to, shape.Func, minute}
		if h.runs[r] == 0 {
			h.order = append(h.order, r)
		}
		h.runs[r] += n
	case schema.OpHostFunc:
		s.hostFuncs += n
	}
}

// kernel counts n launches of one function. It returns nil if the process has too many kernel names.
func (h *Histogram) kernel(b *schema.Batch, to target, function uint32, n, minute uint64) *kernel {
	f := &b.Funcs[function]
	name := h.names.lookup(f.Name)
	to.workload.kernels += n
	h.byName.add(to.comm, name.label, n)
	return to.entry.State.add(name, f.Read, n, minute, h.maxKernels)
}

// run is one executable graph of a batch, launched by one process on one GPU in one minute.
type run struct {
	to       target
	function uint32 // index into Batch.Funcs
	minute   uint64
}

// maxNodes limits the graph nodes that are counted per batch, to twice what its lists can hold: usually one process
// launches a graph on one GPU. Launches above the limit count as partial.
const maxNodes = 1 << 17

// runGraphs counts the kernels that the batch's graph launches run. It costs time per distinct kernel of a graph, not
// per launch.
func (h *Histogram) runGraphs(b *schema.Batch) {
	left := maxNodes
	for _, r := range h.order {
		g := schema.Graph{Partial: true}
		if i := h.graphs[r.function]; i > 0 && len(b.Graphs[i-1].Nodes) <= left {
			g = b.Graphs[i-1]
		}
		left -= len(g.Nodes)
		h.graph(b, r, &g, h.runs[r])
	}
	clear(h.runs)
	clear(h.order) // the process table may forget their processes
	h.order = h.order[:0]
}

// graph counts what n launches of one executable graph run.
func (h *Histogram) graph(b *schema.Batch, r run, g *schema.Graph, n uint64) {
	to, kernels := r.to, uint64(0)
	if g.Partial {
		to.entry.State.partial += n
		to.workload.partial += n
	}
	for _, node := range g.Nodes {
		kernels += uint64(node.Count)
		launches := n * uint64(node.Count)
		if launches == 0 {
			continue
		}
		to.workload.fromGraphs += launches
		if k := h.kernel(b, to, node.Func, launches, r.minute); k != nil {
			k.fromGraphs += launches
		}
	}
	if x := to.entry.State.executable(b.Funcs[r.function].Handle); x != nil {
		x.add(n, r.minute)
		x.kernels, x.partial = kernels, g.Partial
	}
}

// index finds the batch's graphs by function. A function has at most one graph.
func (h *Histogram) index(b *schema.Batch) {
	h.graphs = append(h.graphs[:0], make([]int, len(b.Funcs))...)
	for i := range b.Graphs {
		h.graphs[b.Graphs[i].Func] = i + 1
	}
}
