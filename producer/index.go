package producer

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/schema"
)

// An event refers to entries of its batch's dictionaries by index. Each index is remembered where its entry is, for one
// generation of the open batch.

// ref is the index of a call in the open batch. A call that a capture turned into a graph node has an entry of its own.
func (t *translator) ref(kind schema.Kind, h *bpf.Head) uint32 {
	o := t.batches.open[kind]
	if h.Capture != 0 {
		recorded := schema.Calls[h.Call].Ref()
		recorded.Op = schema.OpRecord
		return o.Call(recorded)
	}
	c := &t.calls[h.Call][kind]
	if c.Generation != o.generation {
		c.Generation, c.Index = o.generation, o.Call(schema.Calls[h.Call].Ref())
	}
	return c.Index
}

func threadIndex(o *openBatch, thread *process.Thread) uint32 {
	c := &thread.Indexes.Thread[o.Kind()]
	if c.Generation != o.generation {
		p := &thread.Process.Index[o.Kind()]
		if p.Generation != o.generation {
			p.Generation, p.Index = o.generation, o.Process(thread.Process.Process)
		}
		c.Generation = o.generation
		c.Index = o.Thread(schema.Thread{Process: p.Index, TID: thread.TID, Comm: thread.Comm})
	}
	return c.Index
}

func contextIndex(o *openBatch, thread *process.Thread, c schema.Context) uint32 {
	i := &thread.Indexes
	if i.ContextGeneration != o.generation || i.Context != c {
		i.Context, i.ContextGeneration, i.ContextIndex = c, o.generation, o.Context(c)
	}
	return i.ContextIndex
}

func streamIndex(o *openBatch, thread *process.Thread, cudaStream uint64) uint32 {
	i := &thread.Indexes
	if i.CUDAStream != cudaStream {
		i.CUDAStream, i.CUDAStreams = cudaStream, process.Index{}
	}
	c := &i.CUDAStreams[o.Kind()]
	if c.Generation != o.generation {
		c.Generation, c.Index = o.generation, o.CUDAStream(cudaStream)
	}
	return c.Index
}

// contextGPU is the index of the GPU of a context at a time; 0 while the GPU is unknown.
func (t *translator) contextGPU(o *openBatch, thread *process.Thread, context uint64, at schema.KTime) uint32 {
	p, i := thread.Process, &thread.Indexes
	if at < p.ContextsMoved { // another answer than for later calls
		index, _ := t.gpuIndex(o, p, context, at)
		return index
	}
	if i.GPUContext != context || i.DeviceVersion != p.DeviceVersion {
		i.GPUContext, i.DeviceVersion, i.GPU = context, p.DeviceVersion, process.Index{}
	}
	c := &i.GPU[o.Kind()]
	if c.Generation == o.generation {
		return c.Index
	}
	index, known := t.gpuIndex(o, p, context, at)
	if !known {
		return 0
	}
	c.Generation, c.Index = o.generation, index
	return c.Index
}

// gpuIndex adds the GPU of a context to the dictionary, if gputap knows or can infer it.
func (t *translator) gpuIndex(
	o *openBatch, p *process.Process, context uint64, at schema.KTime,
) (index uint32, known bool) {
	if ordinal, known := p.Ordinal(context, at); known {
		return o.GPU(t.known.GPU(p, ordinal)), true
	}
	if gpu := t.known.InferredGPU(p); gpu != nil {
		return o.GPU(*gpu), true
	}
	return 0, false
}
