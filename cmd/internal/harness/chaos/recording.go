package main

import (
	"encoding/binary"
	"os"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

const (
	callGap   = schema.KTime(time.Millisecond) // between two calls
	callTime  = 1000                           // ns
	firstAddr = 0x7f00_0000_0000
	mebibyte  = 1 << 20
)

var card = schema.GPU{UUID: "GPU-51500000-0000-4000-8000-000000000000"}

// writeRecording writes the recording that every host replays, as gputap simulate reads it. Programs begin and end
// within its few seconds, so a takeover carries over ended processes, unfreed memory, mappings, contexts and pools.
func writeRecording(path string) error {
	r := recorder{now: schema.KTime(time.Minute)}
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		r.open[kind] = schema.NewBuilder(kind)
	}
	r.play([]program{
		{pid: 10, comm: "train", calls: train()},
		{pid: 20, comm: "serve", calls: serve(), begins: 30},
		{pid: 30, comm: "short", calls: short(1), begins: 60},
		{pid: 40, comm: "notebook", calls: notebook(), begins: 80},
		{pid: 50, comm: "short", calls: short(2), begins: 130},
		{pid: 60, comm: "short", calls: short(3), begins: 210},
	})
	var out []byte
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		if r.open[kind].Events() == 0 {
			continue
		}
		data := r.open[kind].Encode(&schema.Header{
			Cluster: "recorded", Host: "recorded", BootID: "00000000-0000-4000-8000-000000000000", Run: 1, Seq: 1,
			ClockOffset: 1,
		})
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(data))), data...)
	}
	return os.WriteFile(path, out, 0o644)
}

// program is one process of the recording.
type program struct {
	pid     uint32
	comm    string
	begins  int // round in which it makes its first call
	calls   []call
	context uint64 // current one; 0: none
}

// call is one call of a program. Addresses and handles are numbers that at turns into the program's own.
type call struct {
	symbol    string
	ptr       int
	bytes     uint64
	aux, pool int
	failed    bool   // for lack of memory
	kernel    string // of a launch
}

func on(symbol string, ptr int, bytes uint64) call {
	return call{symbol: symbol, ptr: ptr, bytes: bytes}
}

var exit = call{symbol: "process_exit"}

// train allocates memory of all kinds, frees a part of it, and ends with the rest unfreed.
func train() []call {
	const context, pool, handle, mapped = 1, 2, 3, 4
	tooMuch := call{symbol: "cuMemAlloc_v2", bytes: 200 << 30, failed: true}
	return slices.Concat([]call{
		on("cuDevicePrimaryCtxRetain", context, 0), on("cuMemAlloc_v2", 10, 64*mebibyte),
		on("cuMemAlloc_v2", 11, 3*mebibyte), on("cuMemAlloc_v2", 12, 512), on("cuMemPoolCreate", pool, 0),
		{symbol: "cuMemAllocFromPoolAsync", ptr: 20, bytes: 5 * mebibyte, pool: pool},
		{symbol: "cuMemAllocFromPoolAsync", ptr: 21, bytes: 7 * mebibyte, pool: pool},
		on("cuMemCreate", handle, 32*mebibyte), on("cuMemAddressReserve", mapped, 32*mebibyte),
		{symbol: "cuMemMap", ptr: mapped, bytes: 32 * mebibyte, aux: handle},
		on("cuMemSetAccess", mapped, 32*mebibyte),
	}, work(30), []call{
		tooMuch, on("cuMemFree_v2", 10, 0), on("cuMemAlloc_v2", 10, 48*mebibyte), // reuses the address
		on("cuMemFreeAsync", 20, 0), on("cuMemRelease", handle, 0), // the mapping keeps the memory alive
		on("cuMemHostAlloc", 30, 16*mebibyte),
	}, work(30), []call{tooMuch, on("cuMemUnmap", mapped, 32*mebibyte), on("cuMemFree_v2", 11, 0), exit})
}

// serve destroys a context, which frees the context's memory.
func serve() []call {
	const context = 1
	return slices.Concat([]call{
		on("cuCtxCreate_v2", context, 0), on("cuMemAllocManaged", 10, 24*mebibyte),
		on("cuMemHostAlloc", 11, 2*mebibyte), on("cuMemAlloc_v2", 12, 9*mebibyte),
		on("cuMemAllocAsync", 13, 4*mebibyte),
	}, work(20), []call{on("cuMemFree_v2", 10, 0), on("cuMemFreeHost", 11, 0)}, work(10), []call{
		on("cuCtxDestroy_v2", context, 0), on("cuMemAlloc_v2", 14, 6*mebibyte), exit,
	})
}

// short frees everything that it allocated.
func short(mebibytes uint64) []call {
	return slices.Concat([]call{on("cuMemAlloc_v2", 10, mebibytes*mebibyte)}, work(8),
		[]call{on("cuMemFree_v2", 10, 0), exit})
}

// notebook runs until the recording ends.
func notebook() []call {
	return slices.Concat([]call{on("cuMemAlloc_v2", 10, 100*mebibyte), on("cuMemAlloc_v2", 11, mebibyte)}, work(25),
		[]call{on("cuMemFree_v2", 11, 0)})
}

// work returns the calls of so many steps: copies, launches and waits.
func work(steps int) (calls []call) {
	gemm := call{symbol: "cuLaunchKernel", kernel: "_Z4gemmPfi"}
	relu := call{symbol: "cuLaunchKernel", kernel: "_Z4reluPf"}
	for i := range steps {
		calls = append(calls, on("cuMemcpyHtoD_v2", 10, uint64(i+1)<<10), gemm, relu, gemm,
			on("cuMemcpyDtoHAsync_v2", 10, 4096), call{symbol: "cuStreamSynchronize"})
	}
	return calls
}

// recorder makes the batches of the recording, one of each kind.
type recorder struct {
	open [schema.NumKinds]*schema.Builder
	now  schema.KTime
}

// play runs the programs side by side. Each program makes one call per round, from the round in which it begins.
func (r *recorder) play(programs []program) {
	began := r.now
	for round, left := 0, true; left; round++ {
		left = false
		for i := range programs {
			p := &programs[i]
			left = left || len(p.calls) > 0
			if round >= p.begins && len(p.calls) > 0 {
				r.add(p, &p.calls[0], began)
				p.calls = p.calls[1:]
			}
		}
	}
}

// at returns an address or handle of the program; 0 stays 0.
func (p *program) at(number int) uint64 {
	if number == 0 {
		return 0
	}
	return firstAddr + uint64(p.pid)<<32 + uint64(number)<<24
}

// add records one call of a program that began at some time.
func (r *recorder) add(p *program, c *call, began schema.KTime) {
	row := &schema.Calls[slices.IndexFunc(schema.Calls, func(row schema.Call) bool { return row.Symbol == c.symbol })]
	b := r.open[row.Kind]
	r.now += callGap
	process := b.Process(schema.Process{
		PID: p.pid, Start: began, UID: 1000, Comm: p.comm, Exe: "/usr/bin/" + p.comm, User: "chaos",
	})
	thread := b.Thread(schema.Thread{Process: process, TID: p.pid, Comm: p.comm})
	id, gpu := b.Call(row.Ref()), b.GPU(card)
	switch row.Kind {
	case schema.KindMemory:
		m := schema.Memory{
			Time: r.now, Duration: callTime, Thread: thread, Call: id, GPU: gpu,
			Ptr: p.at(c.ptr), Bytes: c.bytes, Aux: p.at(c.aux), Pool: p.at(c.pool),
		}
		if c.failed {
			m.Result = 2 // CUDA_ERROR_OUT_OF_MEMORY
		}
		if p.context != 0 {
			m.Context = b.Context(schema.Context{Handle: p.context, GPU: gpu})
		}
		b.AddMemory(&m)
		switch row.Op {
		case schema.OpContextCreate, schema.OpContextRetain:
			p.context = m.Ptr
		case schema.OpContextDestroy:
			p.context = 0
		}
	case schema.KindLaunch:
		f := b.Func(schema.Func{Name: c.kernel, Handle: p.at(100 + len(c.kernel))})
		shape := b.Shape(schema.LaunchShape{Call: id, Func: f, Grid: [3]uint32{64, 1, 1}, Block: [3]uint32{256, 1, 1}})
		b.AddLaunch(&schema.Launch{Time: r.now, Thread: thread, GPU: gpu, Shape: shape, CUDAStream: b.CUDAStream(0)})
	case schema.KindCopy:
		b.AddCopy(&schema.Copy{
			Time: r.now, Duration: callTime, Thread: thread, Call: id, GPU: gpu, Bytes: c.bytes,
			Dst: p.at(c.ptr), Src: p.at(11), CUDAStream: b.CUDAStream(0),
		})
	case schema.KindSync:
		b.AddSync(&schema.Sync{
			Time: r.now, Duration: callTime, Thread: thread, Call: id, GPU: gpu, CUDAStream: b.CUDAStream(0),
		})
	}
}
