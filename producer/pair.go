package producer

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/pairing"
	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/schema"
)

// Copies, and the pairs of launches, copies and waits. See package pairing.

func (t *translator) copy(c *bpf.CopyRecord) {
	if !t.wanted[schema.KindCopy] {
		return
	}
	o, call, at := t.batches.open[schema.KindCopy], &schema.Calls[c.Call], schema.KTime(c.Time)
	thread := t.known.Thread(&c.Head)
	bytes := c.Bytes
	if call.Unit != 0 {
		bytes *= uint64(call.Unit)
	}
	ref, way := t.ref(schema.KindCopy, &c.Head), call.Direction
	if c.SrcType|c.DstType != 0 && c.Capture == 0 && way == schema.DirDefault {
		known := call.Ref()
		way = direction(c.SrcType, c.DstType)
		known.Direction = way
		ref = o.Call(known)
	}
	e := schema.Copy{
		Time: at, Duration: c.Duration, Thread: threadIndex(o, thread), Call: ref,
		GPU:    t.contextGPU(o, thread, thread.Process.ContextOf(&c.Head, c.CUDAStream), at),
		Result: c.Result, Bytes: bytes, Dst: c.Dst, Src: c.Src, CUDAStream: streamIndex(o, thread, c.CUDAStream),
	}
	if t.wanted[schema.KindMemory] {
		e.HostMem = thread.Process.HostMem(way, c.Dst, c.Src, c.Time)
	}
	o.AddCopy(&e)
	t.pairCopy(c, thread, way, &e)
	t.added(schema.KindCopy, call.Op)
}

// direction returns that of a copy between two CUmemorytypes.
func direction(src, dst uint16) schema.Direction {
	const host, device, array, unified = 1, 2, 3, 4
	onGPU := func(t uint16) bool { return t == device || t == array }
	switch {
	case src == host && onGPU(dst):
		return schema.HtoD
	case onGPU(src) && dst == host:
		return schema.DtoH
	case onGPU(src) && onGPU(dst):
		return schema.DtoD
	case src == host && dst == host:
		return schema.HtoH
	}
	return schema.DirDefault
}

// paired is where the launches of a thread in a CUDA stream are noted.
type paired struct {
	thread *pairing.Thread // nil: nowhere
	stream *pairing.Stream // nil if it is not followed
}

func (t *translator) cudaStream(thread *process.Thread, h *bpf.Head, cudaStream uint64) *pairing.Stream {
	return t.pairs.Stream(&thread.Process.Pairs, pairPlace(thread, h, cudaStream))
}

func pairPlace(thread *process.Thread, h *bpf.Head, cudaStream uint64) pairing.Place {
	return pairing.Place{
		CUDAStream: cudaStream, PerThread: perThread[h.Call], Context: thread.Process.ContextOf(h, cudaStream),
		TID: h.TID, Late: thread.Process.Late,
	}
}

// perThread has Call.PerThread of every call.
var perThread = func() (of []bool) {
	for i := range schema.Calls {
		of = append(of, schema.Calls[i].PerThread())
	}
	return of
}()

// pairLaunch notes a launch that was not cached.
func (t *translator) pairLaunch(l *bpf.LaunchRecord, thread *process.Thread) (at paired) {
	op := schema.Calls[l.Call].Op
	if t.pairs == nil || l.Capture != 0 || op != schema.OpLaunch && op != schema.OpGraphLaunch {
		return at
	}
	at = paired{&thread.Pairs, t.cudaStream(thread, &l.Head, l.CUDAStream)}
	t.pairs.Launch(at.thread, at.stream, l)
	return at
}

func (t *translator) pairWait(s *bpf.SyncRecord, thread *process.Thread) {
	call := &schema.Calls[s.Call]
	if t.pairs == nil || call.Op != schema.OpSync || s.Result != 0 {
		return
	}
	of := &thread.Pairs
	switch {
	case call.CUDAStream != 0:
		t.pairs.WaitStream(of, t.cudaStream(thread, &s.Head, s.CUDAStream), s)
	case call.Shape == schema.ShapeSync:
		t.pairs.WaitContext(of, &thread.Process.Pairs, s.CUDAContext, s)
	case call.Symbol == "cuCtxSynchronize_v2":
		context := s.Handle
		if context == 0 {
			context = s.CUDAContext
		}
		t.pairs.WaitContext(of, &thread.Process.Pairs, context, s)
	default:
		t.pairs.Wait(of, s)
	}
}

// pairCopy notes a copy. A synchronous one between host and GPU waits for the earlier work of its default CUDA stream:
// https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html
func (t *translator) pairCopy(c *bpf.CopyRecord, thread *process.Thread, way schema.Direction, e *schema.Copy) {
	if t.pairs == nil || c.Result != 0 || c.Capture != 0 {
		return
	}
	switch schema.Calls[c.Call].Op {
	case schema.OpCopyAsync:
		t.pairs.Copy(t.cudaStream(thread, &c.Head, c.CUDAStream), pairing.Copy{
			Work: pairing.Work{Head: c.Head, CUDAStream: c.CUDAStream}, Duration: c.Duration, Bytes: e.Bytes,
			Direction: way, HostMem: e.HostMem,
		})
	case schema.OpCopy:
		if way == schema.HtoD || way == schema.DtoH {
			t.pairs.Block(&thread.Process.Pairs, pairPlace(thread, &c.Head, 0), c)
		}
	}
}

// addPairs adds the events of the pairs that are complete now.
func (t *translator) addPairs() {
	if t.pairs == nil {
		return
	}
	t.pairs.Finish(t.now, t.lost)
	t.metrics.unpaired.Store(t.pairs.Unknown)
	for i := range t.pairs.Gaps {
		t.resumed(&t.pairs.Gaps[i])
	}
	for i := range t.pairs.Ended {
		t.copied(&t.pairs.Ended[i])
	}
}

func (t *translator) resumed(g *pairing.Gap) {
	o, thread := t.batches.open[schema.KindSync], t.known.Thread(&g.Head)
	ref := schema.Calls[g.Call].Ref()
	ref.Op = schema.OpResume
	o.AddSync(&schema.Sync{
		Time: schema.KTime(g.Time), Duration: g.NS, Thread: threadIndex(o, thread), Call: o.Call(ref),
		GPU:        t.contextGPU(o, thread, thread.Process.ContextOf(&g.Head, g.CUDAStream), schema.KTime(g.Time)),
		CUDAStream: streamIndex(o, thread, g.CUDAStream),
	})
	t.batches.added(schema.KindSync, t.now)
}

func (t *translator) copied(c *pairing.Ended) {
	o, thread := t.batches.open[schema.KindCopy], t.known.Thread(&c.Head)
	ref := schema.Calls[c.Call].Ref()
	ref.Op, ref.Direction = schema.OpCopied, c.Direction
	if c.Behind {
		ref.Op = schema.OpCopiedBehind
	}
	o.AddCopy(&schema.Copy{
		Time: schema.KTime(c.Time), Duration: c.NS, Thread: threadIndex(o, thread), Call: o.Call(ref),
		GPU:   t.contextGPU(o, thread, thread.Process.ContextOf(&c.Head, c.CUDAStream), schema.KTime(c.Time)),
		Bytes: c.Bytes, CUDAStream: streamIndex(o, thread, c.CUDAStream), HostMem: c.HostMem,
	})
	t.batches.added(schema.KindCopy, t.now)
}
