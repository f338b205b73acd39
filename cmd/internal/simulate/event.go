package simulate

import (
	"cmp"

	"github.com/gputap/gputap/schema"
)

// event copies event i of a recorded batch, and the dictionary entries that it refers to, into an open batch.
func (m *maker) event(o *openBatch, b *schema.Batch, i int, at schema.KTime) {
	thread, gpu := m.thread(o, b, uint32(b.Thread().At(i))), m.gpu(o, b, uint32(b.GPU().At(i)))
	duration := m.duration(schema.KTime(b.Time().At(i)), b.Duration().At(i), at)
	switch b.Kind {
	case schema.KindMemory:
		e := b.Memory(i)
		if b.Calls[e.Call].Op == schema.OpExit {
			p := &b.Processes[b.Threads[e.Thread].Process]
			m.alive[image{p.PID, p.Start}].ended = true
		}
		if e.Context > 0 {
			c := b.Contexts[e.Context-1]
			c.GPU = m.gpu(o, b, c.GPU)
			e.Context = o.Context(c)
		}
		if e.Stack > 0 {
			e.Stack = o.Stack(b.Stacks[e.Stack-1])
		}
		e.Time, e.Duration, e.Thread, e.GPU, e.Call = at, duration, thread, gpu, o.Call(b.Calls[e.Call])
		o.AddMemory(&e)
	case schema.KindLaunch:
		e := b.Launch(i)
		e.Time, e.Thread, e.GPU = at, thread, gpu
		e.Shape, e.CUDAStream = m.shape(o, b, e.Shape), o.CUDAStream(b.CUDAStreams[e.CUDAStream])
		o.AddLaunch(&e)
	case schema.KindCopy:
		e := b.Copy(i)
		e.Time, e.Duration, e.Thread, e.GPU, e.Call = at, duration, thread, gpu, o.Call(b.Calls[e.Call])
		e.CUDAStream = o.CUDAStream(b.CUDAStreams[e.CUDAStream])
		o.AddCopy(&e)
	case schema.KindSync:
		e := b.Sync(i)
		e.Time, e.Duration, e.Thread, e.GPU, e.Call = at, duration, thread, gpu, o.Call(b.Calls[e.Call])
		e.CUDAStream = o.CUDAStream(b.CUDAStreams[e.CUDAStream])
		o.AddSync(&e)
	}
}

// duration returns the duration of a call that now starts at the given time. The call still returns before the events
// that followed its return, so that a free stays behind its allocation.
func (m *maker) duration(began schema.KTime, recorded uint64, at schema.KTime) uint64 {
	end := began + schema.KTime(recorded)
	if end < began { // the sum wraps: not a real duration
		return recorded
	}
	return min(recorded, uint64(m.pace.of(end)-at))
}

func (m *maker) thread(o *openBatch, b *schema.Batch, i uint32) uint32 {
	t := b.Threads[i]
	t.Process = m.process(o.Builder, &b.Processes[t.Process])
	t.TID = m.number(t.TID)
	return o.Thread(t)
}

// process gives a process its number in this life, and a start after the exits of the previous life.
func (m *maker) process(o *schema.Builder, recorded *schema.Process) uint32 {
	p := *recorded
	first := m.alive[image{p.PID, p.Start}].first
	p.Start = m.pace.of(first) - min(first-min(first, p.Start), m.lead/2)
	p.PID = m.number(p.PID)
	return o.Process(p)
}

func (m *maker) gpu(o *openBatch, b *schema.Batch, i uint32) uint32 {
	if i == 0 {
		return 0
	}
	g := b.GPUs[i-1]
	g.UUID = m.uuid(g.UUID)
	if g.UUID != "" {
		g.Bytes = cmp.Or(g.Bytes, simulatedGPU)
	}
	return o.GPU(g)
}

// shape copies a launch shape, and the graph that it launches.
func (m *maker) shape(o *openBatch, b *schema.Batch, i uint32) uint32 {
	s := b.Shapes[i]
	recorded := s.Func
	s.Call, s.Func = o.Call(b.Calls[s.Call]), o.Func(b.Funcs[s.Func])
	if !o.graphs[s.Func] {
		m.graph(o, b, recorded, s.Func)
	}
	return o.Shape(s)
}

func (m *maker) graph(o *openBatch, b *schema.Batch, recorded, now uint32) {
	for _, g := range b.Graphs {
		if g.Func != recorded {
			continue
		}
		nodes := make([]schema.Node, len(g.Nodes))
		for i, n := range g.Nodes {
			nodes[i] = schema.Node{Func: o.Func(b.Funcs[n.Func]), Count: n.Count}
		}
		o.Graph(schema.Graph{Func: now, Partial: g.Partial, Nodes: nodes})
		o.graphs[now] = true
	}
}
