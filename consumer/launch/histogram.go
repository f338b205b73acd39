package launch

import (
	"strconv"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Config of a Histogram; the zero Config is usable.
type Config struct {
	Keep       time.Duration // a process is forgotten this long after its last launch; 0: never
	MaxKernels int           // kernel names of one process; 0: 10,000
}

// Histogram is the launches of all processes.
type Histogram struct {
	maxKernels int
	counter    counter

	mu        sync.Mutex
	processes *process.Table[state]
	names     names
	workloads series[workload, launches]
	byName    byName
}

// launches of one workload.
type launches struct{ kernels, graphs uint64 }

// workload is the labels of one series.
type workload struct{ hostname, gpu, uuid, container, comm string }

// New returns an empty Histogram.
func New(cfg Config) *Histogram {
	h := &Histogram{
		maxKernels: cfg.MaxKernels,
		names:      names{},
		workloads:  newSeries[workload, launches](workload{comm: other}),
		byName:     newByName(),
	}
	if h.maxKernels <= 0 {
		h.maxKernels = 10_000
	}
	var forget func(*process.Entry[state], time.Duration) bool
	if cfg.Keep > 0 {
		forget = func(_ *process.Entry[state], silent time.Duration) bool { return silent >= cfg.Keep }
	}
	h.processes = process.NewTable(forget)
	return h
}

// Name of the fold.
func (h *Histogram) Name() string { return "launch" }

// Kinds that the fold reads.
func (h *Histogram) Kinds() []schema.Kind { return []schema.Kind{schema.KindLaunch, schema.KindHost} }

// Apply counts one batch. A heartbeat tells it nothing and is no error.
func (h *Histogram) Apply(b *schema.Batch) error {
	if b.Kind != schema.KindLaunch {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &h.counter
	c.load(b, h.processes.Threads(b))
	c.each(b, func(g group, perShape []uint64) {
		to := h.target(b, g)
		for shape, n := range perShape {
			if n > 0 {
				h.add(b, to, &b.Shapes[shape], n)
			}
		}
	}, func(g group, shape int) {
		h.add(b, h.target(b, g), &b.Shapes[shape], 1)
	})
	c.release()
	return nil
}

// target is where the launches of one process on one GPU are counted.
type target struct {
	entry    *process.Entry[state]
	workload *launches
	comm     *comm
}

func (h *Histogram) target(b *schema.Batch, g group) target {
	w := workload{hostname: process.Label(b.Host), container: process.Label(g.entry.Container), comm: process.Label(g.entry.Comm)}
	if g.gpu > 0 {
		w.gpu, w.uuid = strconv.Itoa(int(b.GPUs[g.gpu-1].Ordinal)), process.Label(b.GPUs[g.gpu-1].UUID)
	}
	return target{g.entry, h.workloads.at(w), h.byName.comm(w.comm)}
}

// add counts n launches of one shape.
func (h *Histogram) add(b *schema.Batch, to target, shape *schema.LaunchShape, n uint64) {
	call := &b.Calls[shape.Call]
	to.entry.Calls.Find(call).OK += n
	switch call.Op {
	case schema.OpLaunch:
		name := h.names.of(b.Funcs[shape.Func].Name)
		to.entry.State.add(name, shape, n, h.maxKernels)
		to.workload.kernels += n
		h.byName.add(to.comm, name.label, n)
	case schema.OpGraphLaunch:
		to.entry.State.graphs += n
		to.workload.graphs += n
	}
}
