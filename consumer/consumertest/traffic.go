package consumertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/schema"
)

// traffic generates the steps of a small fleet: hosts of one name in two clusters, changes of boots and runs, losses,
// and arbitrary calls of programs in any order.
type traffic struct {
	rng   *rand.Rand
	hosts []*Host
	beat  uint64
	now   schema.KTime
}

// Traffic returns n steps of every kind. The same seed returns the same steps.
func Traffic(tb testing.TB, seed uint64, n int) (steps []Step) {
	r := traffic{rng: rand.New(rand.NewPCG(seed, 99)), now: 1000}
	for i, name := range []string{"a", "b", "b", "bad\xff"} {
		h := Memory(tb, name)
		h.Header.Cluster = fmt.Sprintf("c%d", i/2)
		r.hosts = append(r.hosts, h)
	}
	for range n {
		h := r.hosts[r.rng.IntN(len(r.hosts))]
		r.change(h)
		if r.rng.IntN(20) == 0 {
			steps = append(steps, Step{Lost: 1 + r.rng.Uint64N(3), From: h.Header})
			continue
		}
		steps = append(steps, Step{Message: r.message(h)})
	}
	return steps
}

// change restarts the producer of a host, loses an event, reboots the host, lets time pass, or does nothing.
func (r *traffic) change(h *Host) {
	switch r.rng.IntN(20) {
	case 0:
		h.Header.Run++
	case 1:
		h.Header.Lost[schema.LossControlRing]++
	case 2:
		h.Header.BootID = fmt.Sprintf("boot-%d", r.rng.IntN(4))
		h.Header.ClockOffset = 1_700_000_000e9 + int64(h.Header.BootID[5]-'0')*1e9
	case 3:
		r.now += 90e9 // long enough to trigger a sweep of the process table
	}
}

func (r *traffic) message(h *Host) []byte {
	switch r.rng.IntN(10) {
	case 0:
		return r.heartbeat(h)
	case 1:
		return r.launches(h)
	case 2:
		return r.copies(h)
	case 3:
		return r.syncs(h)
	}
	for range 40 {
		r.now += schema.KTime(r.rng.Uint64N(1000))
		r.memory(h)
	}
	return h.Message()
}

func (r *traffic) process(h *Host) *Process {
	n := r.rng.Uint32N(6)
	p := h.Process(100+n, schema.KTime(1+r.rng.Uint64N(3)), []string{"train", "serve", "other"}[r.rng.IntN(3)])
	p.Container, p.UID, p.Late = []string{"", "c0ffee"}[n%2], n, n == 5
	if r.rng.IntN(8) > 0 {
		p.GPU = &schema.GPU{UUID: fmt.Sprintf("GPU-%d", r.rng.IntN(3)), Ordinal: r.rng.Uint32N(2),
			Inferred: r.rng.IntN(3) == 0}
	}
	if r.rng.IntN(4) > 0 {
		p.Context = 1 + r.rng.Uint64N(4)
	}
	return p
}

func (r *traffic) memory(h *Host) {
	p, k, tid := r.process(h), 1+r.rng.Uint64N(20), r.rng.Uint32N(5)
	bytes, at, d := r.rng.Uint64N(1<<r.rng.Uint64N(32)), r.now, r.rng.Uint64N(500)
	switch r.rng.IntN(25) {
	case 0, 1, 2, 3:
		p.Alloc(tid, k<<20, bytes, at, d)
	case 4, 5, 6:
		p.Free(tid, k<<20, at, d)
	case 7:
		p.Create(tid, k, bytes, at, d)
	case 8, 9:
		p.Map(tid, k<<40, 1+r.rng.Uint64N(3)<<40, k%7, at, d)
	case 10:
		p.Unmap(tid, k<<40, 3<<40, at, d)
	case 11:
		p.Release(tid, k, at, d)
	case 12:
		p.Retain(tid, k, k<<40, at, d)
	case 13:
		p.Open(tid, k<<21, 1<<40+k, at, d)
	case 14:
		p.Close(tid, k<<21, at, d)
	case 15:
		p.Export(tid, k<<20, 1<<40+k, at)
	case 16:
		p.AllocPool(tid, k<<22, bytes, 1+k%5, at)
	case 17:
		r.pool(p, k, at)
	case 18:
		r.context(p, k%5, at, d)
	case 19:
		p.Fail([]string{"cuMemAlloc_v2", "cuMemHostAlloc", "cuMemCreate"}[k%3], tid, 2, bytes, at)
	case 20:
		p.MemInfo(bytes, 1<<36, at).Import(tid, k, k%9, at, d)
	case 21:
		p.Call("cuMemHostAlloc", tid, schema.Memory{Time: at, Duration: d, Ptr: k << 23, Bytes: bytes})
		p.Call("cuMulticastCreate", tid, schema.Memory{Time: at, Duration: d, Ptr: k % 7, Bytes: bytes})
	case 22:
		p.Record("cuMemAllocAsync", tid, schema.Memory{Time: at, Bytes: bytes})
		p.Call("cuMemAllocManaged", tid, schema.Memory{Time: at, Duration: d, Ptr: k << 24, Bytes: bytes})
	case 24:
		r.steady(h, at)
	case 23:
		switch r.rng.IntN(12) {
		case 0:
			p.Exit(at)
		case 1:
			p.Exec("execed", at)
		default:
			p.Alloc(tid, k<<25, 1<<30, at, d).Free(tid, 0, at, 1)
		}
	}
}

// steady adds a process with equal allocations and a few outliers.
func (r *traffic) steady(h *Host, at schema.KTime) {
	p := h.Process(200, 5, "steady")
	for i := range uint64(12) {
		p.Alloc(7, 1<<40+i<<21, 1<<20, at, 1)
	}
	if bytes := 1 << (30 + r.rng.Uint64N(2)); r.rng.IntN(2) == 0 {
		p.Alloc(7, 1<<41, uint64(bytes), at, 1)
	}
}

func (r *traffic) pool(p *Process, k uint64, at schema.KTime) {
	switch handle := 1 + k%5; r.rng.IntN(3) {
	case 0:
		p.Call("cuMemPoolCreate", p.PID, schema.Memory{Time: at, Duration: 1, Ptr: handle, Aux: k << 30})
	case 1:
		p.Call("cuMemPoolDestroy", p.PID, schema.Memory{Time: at, Duration: 1, Ptr: handle})
	default:
		p.PoolInfo(handle, 5+2*(k%2), k<<20, at)
	}
}

func (r *traffic) context(p *Process, handle uint64, at schema.KTime, d uint64) {
	switch r.rng.IntN(6) {
	case 0:
		p.RetainContext(handle, at)
	case 1:
		p.ReleaseContext(handle, at)
	case 2:
		p.ResetContext(handle, at)
	case 3:
		p.CreateContext(handle, at, d)
	case 4:
		p.DestroyContext(handle, at, d)
	default:
		p.Call("cuGreenCtxCreate", p.PID, schema.Memory{Time: at, Duration: d, Ptr: handle})
	}
}

// encode returns a batch of another kind than memory with the host's header.
func (r *traffic) encode(h *Host, b *schema.Builder) []byte {
	header := h.Header
	r.beat++
	header.Seq = r.beat
	return b.Encode(&header)
}

func (r *traffic) thread(h *Host, b *schema.Builder) (thread, gpu uint32) {
	p := r.process(h)
	if p.GPU != nil {
		gpu = b.GPU(*p.GPU)
	}
	return b.Thread(schema.Thread{Process: b.Process(p.Process), TID: r.rng.Uint32N(5), Comm: p.Comm}), gpu
}

func (r *traffic) launches(h *Host) []byte {
	b := schema.NewBuilder(schema.KindLaunch)
	graph := b.Func(schema.Func{Handle: 9})
	b.Graph(schema.Graph{Func: graph, Partial: r.rng.IntN(2) == 0,
		Nodes: []schema.Node{{Func: b.Func(schema.Func{Name: "node"}), Count: 3}}})
	for range 30 {
		r.now += 100
		call, function := schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch}, graph
		switch r.rng.IntN(6) {
		case 0:
			call = schema.CallRef{Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch}
		case 1:
			call.Op = schema.OpRecord
		default:
			function = b.Func(schema.Func{Name: []string{"", "_Z4axpyIfEvT_PS0_S1_i", "k%d", "other",
				"k%d"}[r.rng.IntN(5)], Read: r.rng.IntN(2) == 0})
			if r.rng.IntN(2) == 0 {
				function = b.Func(schema.Func{Name: fmt.Sprintf("kernel_%d", r.rng.IntN(60))})
			}
		}
		thread, gpu := r.thread(h, b)
		shape := b.Shape(schema.LaunchShape{Call: b.Call(call), Func: function,
			Grid: [3]uint32{1 + r.rng.Uint32N(12), 1, 1}, Block: [3]uint32{32, 1, 1}})
		b.AddLaunch(&schema.Launch{Time: r.now, Thread: thread, GPU: gpu, Shape: shape, CUDAStream: b.CUDAStream(0)})
	}
	return r.encode(h, b)
}

func (r *traffic) copies(h *Host) []byte {
	b := schema.NewBuilder(schema.KindCopy)
	for range 30 {
		r.now += 100
		thread, gpu := r.thread(h, b)
		c := &schema.Calls[r.rng.IntN(len(schema.Calls))]
		for c.Kind != schema.KindCopy {
			c = &schema.Calls[r.rng.IntN(len(schema.Calls))]
		}
		ref := c.Ref()
		switch n := r.rng.IntN(10); {
		case n == 0:
			ref.Op = schema.OpRecord
		case n < 4 && ref.Op == schema.OpCopyAsync:
			ref.Op = []schema.Op{schema.OpCopied, schema.OpCopiedBehind}[n%2]
		}
		b.AddCopy(&schema.Copy{
			Time: r.now, Duration: r.rng.Uint64N(1000), Thread: thread, GPU: gpu, Call: b.Call(ref),
			Bytes:   r.rng.Uint64N(1 << (8 + r.rng.Uint64N(20))),
			HostMem: schema.HostMem(r.rng.Uint32N(3)),
			Result:  r.rng.Uint32N(5) / 4, CUDAStream: b.CUDAStream(0),
		})
	}
	return r.encode(h, b)
}

func (r *traffic) syncs(h *Host) []byte {
	b := schema.NewBuilder(schema.KindSync)
	for range 10 {
		r.now += 100
		thread, gpu := r.thread(h, b)
		e := schema.Sync{Time: r.now, Duration: r.rng.Uint64N(1000), Thread: thread, GPU: gpu,
			CUDAStream: b.CUDAStream(r.rng.Uint64N(20)), Result: r.rng.Uint32N(8) / 7}
		ref := schema.CallRef{Symbol: "cuCtxSynchronize", Op: schema.OpSync}
		if r.rng.IntN(3) == 0 {
			ref, e.Result = schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpResume}, 0
		}
		e.Call = b.Call(ref)
		b.AddSync(&e)
	}
	return r.encode(h, b)
}

func (r *traffic) heartbeat(h *Host) []byte {
	b := schema.NewBuilder(schema.KindHost)
	p := b.Process(r.process(h).Process)
	b.Coverage = []schema.Coverage{{Process: p, Asked: r.rng.Uint32N(500), Outside: []string{"cuNew"},
		ExportTables: r.rng.Uint32N(4)}}
	b.Libraries = []schema.Library{{Path: "/lib/libcuda.so.1", Attached: 220, Absent: []string{"cuNew"},
		Failed: []string{"cuOdd"}, Inode: 7}}
	b.GPU(schema.GPU{UUID: "GPU-1", Ordinal: r.rng.Uint32N(4), Name: "NVIDIA H200", Bus: "0000:06:00.0",
		Bytes: 141 << 30})
	b.Linux, b.Producer = "6.12", "v1"
	b.Ends = endsAt(h.Header.Seq, r.now) // the fleet has one clock
	return r.encode(h, b)
}
