package naive

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// Object is a JSON object.
type Object = map[string]any

// Log is everything that hosts published.
type Log struct {
	batches []batch
	events  []event // in the order of publication
	beats   []beat
}

// batch is a header, with the time at which NATS stored the batch among the others.
type batch struct {
	schema.Header
	number int
}

// event is one event with everything that its batch says about it.
type event struct {
	batch
	kind      schema.Kind
	process   schema.Process
	id        schema.ProcessID
	thread    schema.Thread
	call      schema.CallRef
	gpu       *schema.GPU // nil: unknown
	context   uint64      // 0: unknown
	shape     schema.LaunchShape
	function  schema.Func
	graph     *graph
	cudaQueue uint64
	schema.Memory
	hostMem             schema.HostMem
	allocated, reserved uint64
}

// graph is what one launch of an executable graph runs.
type graph struct {
	partial bool
	nodes   []node
}

type node struct {
	function schema.Func
	count    uint64
}

// beat is a heartbeat.
type beat struct {
	batch
	schema.Batch
}

func (e *event) returned() schema.KTime { return e.Time + schema.KTime(e.Duration) }

// ordinal is that of the GPU; -1 if it is unknown.
func (e *event) ordinal() int {
	if e.gpu == nil {
		return -1
	}
	return int(e.gpu.Ordinal)
}

// Add adds the next published message.
func (l *Log) Add(message []byte) error {
	b := &schema.Batch{}
	if err := schema.NewDecoder().Decode(message, b); err != nil {
		return err
	}
	header := batch{b.Header, len(l.batches)}
	l.batches = append(l.batches, header)
	if b.Kind == schema.KindHost {
		l.beats = append(l.beats, beat{header, *b})
	}
	for i := range b.Events {
		l.events = append(l.events, eventOf(header, b, i))
	}
	return nil
}

func eventOf(header batch, b *schema.Batch, i int) event {
	e := event{batch: header, kind: b.Kind}
	gpu := uint32(0)
	switch b.Kind {
	case schema.KindMemory:
		e.Memory = b.Memory(i)
		gpu = e.GPU
		if e.Context > 0 {
			e.context = b.Contexts[e.Context-1].Handle
		}
	case schema.KindLaunch:
		m := b.Launch(i)
		e.Time, e.Thread, gpu, e.cudaQueue = m.Time, m.Thread, m.GPU, b.CUDAStreams[m.CUDAStream]
		e.shape = b.Shapes[m.Shape]
		e.Call, e.function, e.graph = e.shape.Call, b.Funcs[e.shape.Func], graphOf(b, e.shape.Func)
	case schema.KindCopy:
		m := b.Copy(i)
		e.Time, e.Duration, e.Thread, e.Call, gpu = m.Time, m.Duration, m.Thread, m.Call, m.GPU
		e.Result, e.Bytes, e.hostMem = m.Result, m.Bytes, m.HostMem
	case schema.KindSync:
		m := b.Sync(i)
		e.Time, e.Duration, e.Thread, e.Call, gpu = m.Time, m.Duration, m.Thread, m.Call, m.GPU
		e.Result, e.cudaQueue = m.Result, b.CUDAStreams[m.CUDAStream]
	case schema.KindTensor:
		m := b.Tensor(i)
		e.Time, e.Thread, e.Call, gpu, e.Ptr, e.Bytes = m.Time, m.Thread, m.Call, m.GPU, m.Ptr, m.Bytes
		e.allocated, e.reserved = m.Allocated, m.Reserved
	}
	if gpu > 0 {
		e.gpu = &b.GPUs[gpu-1]
	}
	e.thread, e.call = b.Threads[e.Thread], b.Calls[e.Call]
	e.process = b.Processes[e.thread.Process]
	e.id = b.ID(&e.process)
	return e
}

func graphOf(b *schema.Batch, function uint32) *graph {
	for _, g := range b.Graphs {
		if g.Func != function {
			continue
		}
		out := &graph{partial: g.Partial}
		for _, n := range g.Nodes {
			out.nodes = append(out.nodes, node{b.Funcs[n.Func], uint64(n.Count)})
		}
		return out
	}
	return nil
}

// of returns the events of a kind and a process.
func (l *Log) of(kind schema.Kind, id schema.ProcessID) (list []event) {
	for _, e := range l.events {
		if e.kind == kind && e.id == id {
			list = append(list, e)
		}
	}
	return list
}

// processes returns the last row of every process that has events of the kinds.
func (l *Log) processes(kinds ...schema.Kind) (list []event) {
	for _, e := range l.events {
		if !slices.Contains(kinds, e.kind) {
			continue
		}
		i := slices.IndexFunc(list, func(known event) bool { return known.id == e.id })
		if i < 0 {
			list = append(list, e)
		} else {
			list[i] = e
		}
	}
	return list
}
