package naive

import (
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// Object is a JSON object.
type Object = map[string]any

// Log is everything that hosts published.
type Log struct {
	messages []message
	batches  []batch // without repetitions and what is no batch
	events   []event // in the order of publication
	beats    []beat
}

// Message is what NATS stored.
type Message struct {
	Shard    int
	Sequence uint64 // in the stream of the shard
	Subject  string
	Stored   time.Time
	Data     []byte
}

// message is a Message with what it holds.
type message struct {
	Message
	header schema.Header
	valid  bool // it is a batch, of the host and kind that its subject names
	again  bool // it came before
}

// batch is a header, with its place among the others.
type batch struct {
	schema.Header
	number int
	stored time.Time
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

// Add adds the next message.
func (l *Log) Add(m Message) {
	b := &schema.Batch{}
	err := schema.NewDecoder().Decode(m.Data, b)
	valid := err == nil && b.Seq > 0 && m.Subject == schema.Subject(m.Shard, b.Cluster, b.Host, b.Kind)
	again := valid && l.repeats(&b.Header)
	l.messages = append(l.messages, message{m, b.Header, valid, again})
	if !valid || again {
		return
	}
	header := batch{b.Header, len(l.batches), m.Stored}
	l.batches = append(l.batches, header)
	if b.Kind == schema.KindHost {
		l.beats = append(l.beats, beat{header, *b})
	}
	for i := range b.Events {
		l.events = append(l.events, eventOf(header, b, i))
	}
}

// repeats reports whether a batch, or a later one of its producer and kind, came before.
func (l *Log) repeats(h *schema.Header) bool {
	for i := range l.batches {
		if b := &l.batches[i]; b.Seq >= h.Seq && b.Kind == h.Kind && b.Cluster == h.Cluster && b.Host == h.Host &&
			b.BootID == h.BootID && b.Run == h.Run {
			return true
		}
	}
	return false
}

// Sequence returns that of a batch in its stream.
func (l *Log) Sequence(h *schema.Header) uint64 {
	for i := range l.messages {
		if m := &l.messages[i]; m.valid && m.header == *h {
			return m.Sequence
		}
	}
	return 0
}

// only returns the log without the batches of other kinds.
func (l *Log) only(kinds []schema.Kind) *Log {
	of := &Log{messages: l.messages, beats: l.beats}
	for _, b := range l.batches {
		if slices.Contains(kinds, b.Kind) {
			of.batches = append(of.batches, b)
		}
	}
	for _, e := range l.events {
		if slices.Contains(kinds, e.kind) {
			of.events = append(of.events, e)
		}
	}
	return of
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
