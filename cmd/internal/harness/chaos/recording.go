package main

import (
	"encoding/binary"
	"os"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// recorder makes the recording that every host replays. Programs begin and end within its few seconds, so a takeover
// carries over ended processes, unfreed memory, mappings, contexts and pools.
type recorder struct {
	open [schema.NumKinds]*schema.Builder
	now  schema.KTime
}

const (
	callGap   = schema.KTime(time.Millisecond) // between two calls
	callTime  = 1000                           // ns
	firstAddr = 0x7f00_0000_0000
	mebibyte  = 1 << 20
)

var card = schema.GPU{UUID: "GPU-51500000-0000-4000-8000-000000000000"}

// writeRecording writes the recording as gputap simulate reads it.
func writeRecording(path string) error {
	r := recorder{now: schema.KTime(time.Minute)}
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		r.open[kind] = schema.NewBuilder(kind)
	}
	r.play()
	var out []byte
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		data := r.open[kind].Encode(&schema.Header{
			Cluster: "recorded", Host: "recorded", BootID: "00000000-0000-4000-8000-000000000000", Run: 1, Seq: 1,
			ClockOffset: 1,
		})
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(data))), data...)
	}
	return os.WriteFile(path, out, 0o644)
}

// play runs the programs side by side. Each program makes one call per round, from the round in which it begins.
func (r *recorder) play() {
	programs := []struct {
		begins int
		calls  []func()
	}{
		{0, r.program(10, "train").train()},
		{30, r.program(20, "serve").serve()},
		{60, r.program(30, "short").short(1)},
		{80, r.program(40, "notebook").notebook()},
		{130, r.program(50, "short").short(2)},
		{210, r.program(60, "short").short(3)},
	}
	for round, left := 0, true; left; round++ {
		left = false
		for i := range programs {
			p := &programs[i]
			left = left || len(p.calls) > 0
			if round >= p.begins && len(p.calls) > 0 {
				p.calls[0]()
				p.calls = p.calls[1:]
			}
		}
	}
}

// program is one process of the recording.
type program struct {
	*recorder
	schema.Process
	context uint64 // current one; 0: none
}

func (r *recorder) program(pid uint32, comm string) *program {
	return &program{recorder: r, Process: schema.Process{
		PID: pid, Start: r.now, UID: 1000, Comm: comm, Exe: "/usr/bin/" + comm, User: "chaos",
	}}
}

// train allocates memory of all kinds, frees a part of it, and ends with the rest unfreed.
func (p *program) train() []func() {
	const context, pool, handle, mapped = 1, 2, 3, 4
	return slices.Concat([]func(){
		p.makes("cuDevicePrimaryCtxRetain", context),
		p.allocates("cuMemAlloc_v2", 10, 64*mebibyte), p.allocates("cuMemAlloc_v2", 11, 3*mebibyte),
		p.allocates("cuMemAlloc_v2", 12, 512),
		p.memory("cuMemPoolCreate", schema.Memory{Ptr: p.at(pool)}),
		p.memory("cuMemAllocFromPoolAsync", schema.Memory{Ptr: p.at(20), Bytes: 5 * mebibyte, Pool: p.at(pool)}),
		p.memory("cuMemAllocFromPoolAsync", schema.Memory{Ptr: p.at(21), Bytes: 7 * mebibyte, Pool: p.at(pool)}),
		p.allocates("cuMemCreate", handle, 32*mebibyte), p.allocates("cuMemAddressReserve", mapped, 32*mebibyte),
		p.memory("cuMemMap", schema.Memory{Ptr: p.at(mapped), Bytes: 32 * mebibyte, Aux: p.at(handle)}),
		p.allocates("cuMemSetAccess", mapped, 32*mebibyte),
	}, p.work(30), []func(){
		p.memory("cuMemAlloc_v2", schema.Memory{Bytes: 200 << 30, Result: outOfMemory}),
		p.frees("cuMemFree_v2", 10), p.allocates("cuMemAlloc_v2", 10, 48*mebibyte), // reuses the address
		p.frees("cuMemFreeAsync", 20), p.frees("cuMemRelease", handle), // the mapping keeps the memory alive
		p.allocates("cuMemHostAlloc", 30, 16*mebibyte),
	}, p.work(30), []func(){
		p.memory("cuMemAlloc_v2", schema.Memory{Bytes: 200 << 30, Result: outOfMemory}),
		p.allocates("cuMemUnmap", mapped, 32*mebibyte), p.frees("cuMemFree_v2", 11), p.ends(),
	})
}

// serve destroys a context, which frees the context's memory.
func (p *program) serve() []func() {
	const context = 1
	return slices.Concat([]func(){
		p.makes("cuCtxCreate_v2", context),
		p.allocates("cuMemAllocManaged", 10, 24*mebibyte), p.allocates("cuMemHostAlloc", 11, 2*mebibyte),
		p.allocates("cuMemAlloc_v2", 12, 9*mebibyte), p.allocates("cuMemAllocAsync", 13, 4*mebibyte),
	}, p.work(20), []func(){p.frees("cuMemFree_v2", 10), p.frees("cuMemFreeHost", 11)}, p.work(10), []func(){
		p.memory("cuCtxDestroy_v2", schema.Memory{Ptr: p.at(context)}),
		p.allocates("cuMemAlloc_v2", 14, 6*mebibyte), p.ends(),
	})
}

// short frees everything that it allocated.
func (p *program) short(i uint64) []func() {
	return slices.Concat([]func(){p.allocates("cuMemAlloc_v2", 10, i*mebibyte)}, p.work(8),
		[]func(){p.frees("cuMemFree_v2", 10), p.ends()})
}

// notebook runs until the recording ends.
func (p *program) notebook() []func() {
	return slices.Concat([]func(){
		p.allocates("cuMemAlloc_v2", 10, 100*mebibyte), p.allocates("cuMemAlloc_v2", 11, mebibyte),
	}, p.work(25), []func(){p.frees("cuMemFree_v2", 11)})
}

// work returns the calls of so many steps: copies, launches and waits.
func (p *program) work(steps int) (calls []func()) {
	for i := range steps {
		calls = append(calls, p.copies("cuMemcpyHtoD_v2", uint64(i+1)<<10),
			p.launches("_Z4gemmPfi"), p.launches("_Z4reluPf"), p.launches("_Z4gemmPfi"),
			p.copies("cuMemcpyDtoHAsync_v2", 4096), p.waits("cuStreamSynchronize"))
	}
	return calls
}

const outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY

// at returns an address or handle of the program.
func (p *program) at(i int) uint64 { return firstAddr + uint64(p.PID)<<32 + uint64(i)<<24 }

func (p *program) thread(b *schema.Builder) uint32 {
	return b.Thread(schema.Thread{Process: b.Process(p.Process), TID: p.PID, Comm: p.Comm})
}

func ref(symbol string) schema.CallRef {
	return schema.Calls[slices.IndexFunc(schema.Calls, func(c schema.Call) bool { return c.Symbol == symbol })].Ref()
}

func (p *program) memory(symbol string, m schema.Memory) func() {
	return func() {
		b, call := p.open[schema.KindMemory], ref(symbol)
		p.now += callGap
		m.Time, m.Duration, m.Thread, m.Call, m.GPU = p.now, callTime, p.thread(b), b.Call(call), b.GPU(card)
		if p.context != 0 {
			m.Context = b.Context(schema.Context{Handle: p.context, GPU: m.GPU})
		}
		b.AddMemory(&m)
		switch call.Op {
		case schema.OpContextCreate, schema.OpContextRetain:
			p.context = m.Ptr
		case schema.OpContextDestroy:
			p.context = 0
		}
	}
}

func (p *program) makes(symbol string, i int) func() {
	return p.memory(symbol, schema.Memory{Ptr: p.at(i)})
}

func (p *program) allocates(symbol string, i int, bytes uint64) func() {
	return p.memory(symbol, schema.Memory{Ptr: p.at(i), Bytes: bytes})
}

func (p *program) frees(symbol string, i int) func() { return p.makes(symbol, i) }

func (p *program) ends() func() { return p.memory("process_exit", schema.Memory{}) }

func (p *program) launches(name string) func() {
	return func() {
		b := p.open[schema.KindLaunch]
		p.now += callGap
		f := b.Func(schema.Func{Name: name, Handle: p.at(100 + len(name))})
		shape := schema.LaunchShape{Call: b.Call(ref("cuLaunchKernel")), Func: f}
		shape.Grid, shape.Block = [3]uint32{64, 1, 1}, [3]uint32{256, 1, 1}
		b.AddLaunch(&schema.Launch{
			Time: p.now, Thread: p.thread(b), GPU: b.GPU(card), Shape: b.Shape(shape), CUDAStream: b.CUDAStream(0),
		})
	}
}

func (p *program) copies(symbol string, bytes uint64) func() {
	return func() {
		b := p.open[schema.KindCopy]
		p.now += callGap
		b.AddCopy(&schema.Copy{
			Time: p.now, Duration: callTime, Thread: p.thread(b), Call: b.Call(ref(symbol)), GPU: b.GPU(card),
			Bytes: bytes,
			Dst:   p.at(10), Src: p.at(11), CUDAStream: b.CUDAStream(0),
		})
	}
}

func (p *program) waits(symbol string) func() {
	return func() {
		b := p.open[schema.KindSync]
		p.now += callGap
		b.AddSync(&schema.Sync{
			Time: p.now, Duration: callTime, Thread: p.thread(b), Call: b.Call(ref(symbol)), GPU: b.GPU(card),
			CUDAStream: b.CUDAStream(0),
		})
	}
}
