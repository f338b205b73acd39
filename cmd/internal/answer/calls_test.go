package answer_test

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// memory makes a call of memory. Few addresses and handles are in use, so that calls contradict each other too.
func (j *job) memory() {
	r, at := j.m.rng, j.m.now
	key, tid, d := 1+r.Uint64N(24), j.PID+r.Uint32N(3), 1+r.Uint64N(4e6)
	bytes, early := 1+r.Uint64N(1<<(10+r.Uint64N(22))), at-schema.KTime(r.Uint64N(5e6))
	made := schema.Memory{Time: at, Duration: d, Ptr: key << 21, Bytes: bytes}
	switch r.IntN(30) {
	case 0, 1, 2, 3:
		j.Alloc(tid, key<<21, bytes, at, d)
	case 4:
		j.Call("cuMemAllocManaged", tid, made)
	case 5:
		j.Call("cuMemHostAlloc", tid, made)
	case 6:
		j.Call("cuMemHostRegister_v2", tid, made)
	case 7:
		j.Call("cuArrayCreate_v2", tid, made)
	case 8:
		j.Call("cuMemAllocAsync", tid, made)
	case 9:
		j.AllocPool(tid, key<<21, bytes, 1+key%3, at)
	case 10:
		j.Add(&schema.Call{Symbol: "graph", Op: schema.OpAlloc, Class: schema.ClassGraph}, tid, made)
	case 11:
		j.Record("cuMemAllocAsync", tid, made)
	case 12:
		j.Fail([]string{"cuMemAlloc_v2", "cuMemCreate"}[key%2], tid, 1+r.Uint32N(3), bytes, at)
	case 13, 14, 15, 16, 17:
		j.Free(tid, key<<21, early, d)
	case 18:
		j.Free(tid, 0, at, 1).Export(tid, key<<21, 1<<40+key%5, at)
	default:
		j.unusual(r.IntN(14), key, tid, bytes, d, early)
	}
}

// unusual makes a call of memory that few programs make.
func (j *job) unusual(what int, key uint64, tid uint32, bytes, d uint64, early schema.KTime) {
	r, at := j.m.rng, j.m.now
	switch what {
	case 0:
		j.Create(tid, key%6, bytes, at, d)
	case 1:
		j.Map(tid, key<<40, 1+r.Uint64N(3)<<40, key%6, at, d)
	case 2:
		j.Unmap(tid, key<<40, 3<<40, early, d)
	case 3:
		j.Release(tid, key%6, early, d)
	case 4:
		j.Retain(tid, key%6, key<<40, at, d)
	case 5:
		j.Open(tid, key%4<<50, 1<<40+key%5, at, d)
	case 6:
		j.Close(tid, key%4<<50, early, d)
	case 7:
		j.Import(tid, key%6, 1<<40+key%5, at, d)
	case 8, 9, 10:
		j.MemInfo(bytes, 80<<30, at)
	case 11:
		j.PoolInfo(1+key%3, 5+key%3, bytes, at)
	case 12:
		j.pools(key)
	case 13:
		j.contexts(key, early)
	}
}

func (j *job) pools(key uint64) {
	m := schema.Memory{Time: j.m.now, Duration: 1, Ptr: 1 + key%3, Aux: key << 30}
	switch j.m.rng.IntN(4) {
	case 0:
		j.Call("cuMemPoolImportFromShareableHandle", j.PID, m)
	case 1:
		j.Call("cuMemPoolDestroy", j.PID, m)
	default:
		j.Call("cuMemPoolCreate", j.PID, m)
	}
}

// contexts makes a call about a context. An end may have begun before the last allocation returned.
func (j *job) contexts(key uint64, early schema.KTime) {
	at, own := j.m.now, 0x2000+key%2
	if j.Context == 0 {
		return
	}
	switch j.m.rng.IntN(8) {
	case 0:
		j.RetainContext(j.Context, at)
	case 1, 2:
		j.ReleaseContext(j.Context, early)
	case 3:
		j.Alloc(j.PID, key<<21, key<<20, at, 4e6).ResetContext(j.Context, at+1e6) // another thread allocates
	case 4:
		j.CreateContext(own, at, 1)
	case 5, 6:
		j.In(own).Alloc(j.PID, key<<21, key<<20, at, 1)
	case 7:
		j.DestroyContext(own, early, 1)
	}
}

// open adds the process, a thread and the GPU to the open batch of a kind.
func (j *job) open(kind schema.Kind) (b *schema.Builder, thread, gpu uint32) {
	b = j.m.builders[kind]
	if j.GPU != nil {
		gpu = b.GPU(*j.GPU)
	}
	return b, b.Thread(schema.Thread{Process: b.Process(j.Process.Process), TID: j.PID, Comm: j.Comm}), gpu
}

func (j *job) launch() {
	r := j.m.rng
	b, thread, gpu := j.open(schema.KindLaunch)
	call := schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch}
	f := schema.Func{Name: []string{"", "_Z4axpyIfEvT_PS0_S1_i", "gemm", "relu"}[r.IntN(4)], Read: r.IntN(4) > 0}
	switch r.IntN(8) {
	case 0:
		call = schema.CallRef{Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch}
		f = schema.Func{Handle: 0xa0 + r.Uint64N(3)}
	case 1:
		call.Op = schema.OpRecord
	case 2:
		call = schema.CallRef{Symbol: "cuLaunchHostFunc", Op: schema.OpHostFunc}
	}
	function := b.Func(f)
	if f.Handle > 0xa0 && !j.m.graphs[function] { // the nodes of the graph 0xa0 are unknown
		j.m.graphs[function] = true
		b.Graph(schema.Graph{Func: function, Partial: f.Handle == 0xa2, Nodes: []schema.Node{
			{Func: b.Func(schema.Func{Name: "relu"}), Count: 2}, {Func: b.Func(schema.Func{Name: "node"}), Count: 5}}})
	}
	shape := b.Shape(schema.LaunchShape{Call: b.Call(call), Func: function,
		Grid: [3]uint32{1 + r.Uint32N(8), 1, 1}, Block: [3]uint32{64, 1, 1}, SharedBytes: 48})
	b.AddLaunch(&schema.Launch{Time: j.m.now, Thread: thread, GPU: gpu, Shape: shape,
		CUDAStream: b.CUDAStream(j.queue())})
}

func (j *job) queue() uint64 { return j.queues[j.m.rng.IntN(len(j.queues))] }

// copy makes a copy or a set, or shows the end of an asynchronous one.
func (j *job) copy() {
	r := j.m.rng
	b, thread, gpu := j.open(schema.KindCopy)
	rows := slices.DeleteFunc(slices.Clone(schema.Calls), func(c schema.Call) bool { return c.Kind != schema.KindCopy })
	ref := rows[r.IntN(len(rows))].Ref()
	result := uint32(0)
	switch r.IntN(6) {
	case 0:
		ref = schema.CallRef{Symbol: "cuMemcpyHtoDAsync_v2", Op: schema.OpCopied, Direction: schema.HtoD}
	case 1:
		ref = schema.CallRef{Symbol: "cuMemcpyDtoHAsync_v2", Op: schema.OpCopiedBehind, Direction: schema.DtoH}
	case 2:
		ref.Op = schema.OpRecord
	case 3:
		result = r.Uint32N(3)
	}
	b.AddCopy(&schema.Copy{Time: j.m.now, Duration: r.Uint64N(2e6), Thread: thread, GPU: gpu, Call: b.Call(ref),
		Bytes: r.Uint64N(1 << (9 + r.Uint64N(18))), HostMem: schema.HostMem(r.Uint32N(3)), Result: result,
		CUDAStream: b.CUDAStream(j.queue())})
}

// wait makes a call that waits for the GPU, or shows that the thread launched again after one.
func (j *job) wait() {
	r := j.m.rng
	b, thread, gpu := j.open(schema.KindSync)
	e := schema.Sync{Time: j.m.now, Duration: 1 << r.Uint64N(31), Thread: thread, GPU: gpu,
		CUDAStream: b.CUDAStream(j.queue()), Result: r.Uint32N(8) / 7}
	e.Duration += r.Uint64N(e.Duration)
	ref := schema.CallRef{Symbol: "cuStreamSynchronize", Op: schema.OpSync}
	switch r.IntN(4) {
	case 0:
		ref = schema.CallRef{Symbol: "cuStreamQuery", Op: schema.OpQuery}
	case 1, 2:
		ref, e.Result = schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpResume}, 0
	}
	e.Call = b.Call(ref)
	b.AddSync(&e)
}

// tensor reports a block of PyTorch's allocator.
func (j *job) tensor() {
	r := j.m.rng
	b, thread, gpu := j.open(schema.KindTensor)
	op := []schema.Op{schema.OpBlockAlloc, schema.OpBlockAlloc, schema.OpBlockFree}[r.IntN(3)]
	bytes := 512 * (1 + r.Uint64N(1<<16))
	j.allocated += bytes
	if op == schema.OpBlockFree {
		j.allocated -= min(j.allocated, 2*bytes)
	}
	b.AddTensor(&schema.Tensor{Time: j.m.now, Thread: thread, GPU: gpu, Ptr: 1<<40 + r.Uint64N(30)<<21, Bytes: bytes,
		Call: b.Call(schema.CallRef{Symbol: "report", Op: op}), Allocated: j.allocated,
		Reserved: j.allocated + r.Uint64N(1<<24)})
}
