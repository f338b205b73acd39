package schema_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gputap/gputap/schema"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden is one message with the name of its files.
type golden struct {
	name  string
	bytes func() []byte
}

// goldens are the messages of form 1.0: one of each kind, the annotated example of docs/wire.md, and messages that a
// newer producer may send.
var goldens = []golden{
	{"memory", memoryGolden},
	{"launch", launchGolden},
	{"copy", copyGolden},
	{"sync", syncGolden},
	{"tensor", tensorGolden},
	{"host", hostGolden},
	{"stacks", stacksGolden},
	{"rank", rankGolden},
	{"small", smallGolden},
	{"newer_minor", newerMinorGolden},
	{"newer_kind", newerKindGolden},
}

func header(seq uint64) *schema.Header {
	h := &schema.Header{
		Cluster: "lab", Host: "gpu01.example", BootID: "3f1c9a52-7d40-4b1e-9c55-0a1b2c3d4e5f",
		Run: 5_000_000_000, Seq: seq, ClockOffset: 1_790_000_000_000_000_000,
	}
	h.Lost[schema.LossBulkRing] = 3
	h.Lost[schema.LossSpool] = 4096
	return h
}

var (
	train = schema.Process{
		PID: 4242, Start: 9_000_000_000, UID: 1000, Comm: "python3", Exe: "/usr/bin/python3.11",
		Container: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", User: "ada", NSPID: 17,
		Cgroup: "/kubepods.slice/kubepods-pod6e7f.slice/cri-containerd-9f86d081884c.scope",
		Pod:    "6e7f8091-a2b3-c4d5-e6f7-08192a3b4c5d", Job: "slurm-4711", Rank: 4, Ranks: 8,
	}
	idle = schema.Process{PID: 7, Start: 1_000, Comm: "tr\xffin", Late: true, Unit: "train.service"} // a comm is bytes
	h200 = schema.GPU{UUID: "GPU-5d0c1a2b-3c4d-5e6f-7081-92a3b4c5d6e7", Ordinal: 0}
)

func call(symbol string) *schema.Call {
	for i := range schema.Calls {
		if schema.Calls[i].Symbol == symbol {
			return &schema.Calls[i]
		}
	}
	panic("no call " + symbol)
}

// record is the call as it travels when it was recorded into a graph.
func record(symbol string) schema.CallRef {
	c := call(symbol).Ref()
	c.Op = schema.OpRecord
	return c
}

func memoryGolden() []byte {
	b := schema.NewBuilder(schema.KindMemory)
	main := b.Thread(schema.Thread{Process: b.Process(train), TID: 4242, Comm: "python3"})
	other := b.Thread(schema.Thread{Process: b.Process(idle), TID: 8, Comm: "w"})
	gpu := b.GPU(h200)
	primary, unplaced := b.Context(schema.Context{
		Handle: 0x5500_0000_0100, GPU: gpu,
	}), b.Context(schema.Context{Handle: 0x5500_0000_0200})
	const pool, q = 0x5500_0000_2000, 0x5540
	for _, e := range []struct {
		symbol string
		schema.Memory
	}{
		{
			"cuDevicePrimaryCtxRetain",
			schema.Memory{
				Time: 9_999_000_000, Duration: 90_000_000, Thread: main, GPU: gpu, Ptr: 0x5500_0000_0100,
				Context: primary,
			},
		},
		{
			"cuMemAlloc_v2",
			schema.Memory{
				Time: 10_000_000_000, Duration: 1500, Thread: main, GPU: gpu, Ptr: 0x7f00_0000_0000, Bytes: 2 << 20,
				Context: primary,
			},
		},
		{
			"cuMemAlloc_v2",
			schema.Memory{
				Time: 10_000_002_000, Duration: 900, Thread: main, GPU: gpu, Result: 2, Bytes: 1 << 40,
				Context: primary,
			},
		},
		{
			"cuMemCreate",
			schema.Memory{
				Time: 10_000_004_000, Duration: 70_000, Thread: other, Ptr: 0x5500_0000_1000, Bytes: 20 << 20,
				Context: unplaced,
			},
		},
		{
			"cuMemMap",
			schema.Memory{
				Time: 10_000_080_000, Duration: 65, Thread: other, Ptr: 0x7f10_0000_0000, Bytes: 20 << 20,
				Aux: 0x5500_0000_1000, Context: unplaced,
			},
		},
		{
			"cuMemRetainAllocationHandle",
			schema.Memory{
				Time: 10_000_081_000, Duration: 65, Thread: other, Ptr: 0x5500_0000_1000, Aux: 0x7f10_0000_0000,
				Context: unplaced,
			},
		},
		{
			"cuMemPoolCreate",
			schema.Memory{
				Time: 10_000_082_000, Duration: 650, Thread: main, GPU: gpu, Ptr: pool, Aux: 1 << 30, Context: primary,
			},
		},
		{
			"cuMemAllocFromPoolAsync",
			schema.Memory{
				Time: 10_000_083_000, Duration: 650, Thread: main, GPU: gpu, Ptr: 0x7f20_0000_0000, Bytes: 512, Aux: q,
				Context: primary, Pool: pool,
			},
		},
		{
			"cuMemPoolDestroy",
			schema.Memory{Time: 10_000_084_000, Duration: 650, Thread: main, GPU: gpu, Ptr: pool, Context: primary},
		},
		{
			"cuIpcGetMemHandle",
			schema.Memory{
				Time: 10_000_085_000, Duration: 650, Thread: main, GPU: gpu, Ptr: 0x7f00_0000_0000,
				Aux: 0xfeed_face_0000_0001, Context: primary,
			},
		},
		{
			"cuIpcOpenMemHandle_v2",
			schema.Memory{
				Time: 10_000_086_000, Duration: 650, Thread: other, Ptr: 0x7f80_0000_0000, Aux: 0xfeed_face_0000_0001,
				Context: unplaced,
			},
		},
		{
			"cuMemHostRegister_v2",
			schema.Memory{
				Time: 10_000_087_000, Duration: 650, Thread: main, GPU: gpu, Ptr: 0x5600_0000_0000, Bytes: 4096,
				Context: primary,
			},
		},
		{
			"cuMemFree_v2",
			schema.Memory{
				Time: 10_000_090_000, Duration: 300, Thread: main, GPU: gpu, Ptr: 0x7f00_0000_0000, Context: primary,
			},
		},
		{
			"cuDevicePrimaryCtxReset_v2",
			schema.Memory{
				Time: 10_000_095_000, Duration: 300, Thread: main, GPU: gpu, Ptr: 0x5500_0000_0100, Context: primary,
			},
		},
		{"process_exit", schema.Memory{Time: 10_000_100_000, Thread: other}},
	} {
		e.Call = b.Call(call(e.symbol).Ref())
		b.AddMemory(&e.Memory)
	}
	b.AddMemory(&schema.Memory{
		Time: 10_000_091_000, Duration: 300, Thread: main, Call: b.Call(record("cuMemAllocAsync")), GPU: gpu,
		Ptr: 0x7f30_0000_0000, Bytes: 1 << 20, Aux: q, Context: primary,
	})
	b.Older = []uint64{7, 4100}
	return bytes.Clone(b.Encode(header(1)))
}

// stacksGolden is a memory batch with call stacks, as package nsys writes it.
func stacksGolden() []byte {
	b := schema.NewBuilder(schema.KindMemory)
	thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 4242, Comm: "train"}), TID: 4243})
	gpu := b.GPU(schema.GPU{Ordinal: 1})
	alloc := b.Call(schema.CallRef{Symbol: "cudaMalloc_v3020", Op: schema.OpAlloc, Class: schema.ClassDevice})
	static := b.Call(schema.CallRef{Op: schema.OpAlloc, Class: schema.ClassManaged})
	free := b.Call(schema.CallRef{Symbol: "cudaFree_v3020", Op: schema.OpFree, Class: schema.ClassDevice})
	deep := schema.Stack{Frames: []string{"cudaMalloc (/opt/cuda/libcudart.so.12)", "grow(int) (/app/train)", "main"}}
	for _, e := range []schema.Memory{
		{Time: 70_000_000, Call: alloc, Ptr: 0x7f00_0000_0000, Bytes: 1 << 20, Stack: b.Stack(deep)},
		{
			Time: 70_001_000, Call: static, Ptr: 0x7f00_1000_0000, Bytes: 4096,
			Stack: b.Stack(schema.Stack{Name: "table"}),
		},
		{Time: 70_002_000, Call: alloc, Ptr: 0x7f00_2000_0000, Bytes: 1 << 20, Stack: b.Stack(deep)},
		{Time: 70_003_000, Call: free, Ptr: 0x7f00_0000_0000, Bytes: 1 << 20},
	} {
		e.Thread, e.GPU = thread, gpu
		b.AddMemory(&e)
	}
	return bytes.Clone(b.Encode(header(5)))
}

func launchGolden() []byte {
	b := schema.NewBuilder(schema.KindLaunch)
	thread := b.Thread(schema.Thread{Process: b.Process(train), TID: 4250, Comm: "pt_main"})
	gpu := b.GPU(schema.GPU{UUID: h200.UUID, Ordinal: 1, Inferred: true})
	kernel, graph := b.Call(call("cuLaunchKernel").Ref()), b.Call(call("cuGraphLaunch").Ref())
	recorded, host := b.Call(record("cuLaunchKernel")), b.Call(call("cuLaunchHostFunc").Ref())
	axpy := b.Func(schema.Func{Name: "_Z4axpyIfEvT_PS0_S1_i", Handle: 0x5510})
	unseen := b.Func(schema.Func{Handle: 0x5520})
	exec, partial := b.Func(schema.Func{Handle: 0x5530}), b.Func(schema.Func{Handle: 0x5538})
	read := b.Func(schema.Func{Name: "_Z4copyPfS_", Handle: 0x5550, Read: true})
	b.Graph(schema.Graph{Func: exec, Nodes: []schema.Node{{Func: axpy, Count: 3}, {Func: read, Count: 1}}})
	b.Graph(schema.Graph{Func: partial, Partial: true})
	block := [3]uint32{256, 1, 1}
	wide := b.Shape(schema.LaunchShape{
		Call: kernel, Func: axpy, Grid: [3]uint32{4096, 1, 1}, Block: block, SharedBytes: 1024,
	})
	tall := b.Shape(schema.LaunchShape{
		Call: kernel, Func: unseen, Grid: [3]uint32{1, 65535, 2}, Block: [3]uint32{32, 4, 1},
	})
	whole, half := b.Shape(schema.LaunchShape{Call: graph, Func: exec}),
		b.Shape(schema.LaunchShape{Call: graph, Func: partial})
	noted := b.Shape(schema.LaunchShape{Call: recorded, Func: read, Grid: [3]uint32{64, 1, 1}, Block: block})
	called := b.Shape(schema.LaunchShape{Call: host, Func: b.Func(schema.Func{Handle: 0x5560})})
	legacy, own := b.CUDAStream(0), b.CUDAStream(0x5540)
	for i, shape := range []uint32{wide, wide, tall, whole, wide, noted, half, called} {
		q := legacy
		if i > 2 {
			q = own
		}
		b.AddLaunch(&schema.Launch{
			Time: schema.KTime(20_000_000_000 + 1000*i), Thread: thread, GPU: gpu, Shape: shape, CUDAStream: q,
		})
	}
	return bytes.Clone(b.Encode(header(2)))
}

func copyGolden() []byte {
	b := schema.NewBuilder(schema.KindCopy)
	thread := b.Thread(schema.Thread{Process: b.Process(train), TID: 4242, Comm: "python3"})
	gpu := b.GPU(h200)
	legacy := b.CUDAStream(0)
	for _, e := range []struct {
		call schema.CallRef
		schema.Copy
	}{
		{
			call("cuMemcpyHtoD_v2").Ref(),
			schema.Copy{
				Time: 30_000_000_000, Duration: 400_000, Bytes: 16 << 20, Dst: 0x7f00_0000_0000, Src: 0x5600_0000_0000,
			},
		},
		{
			call("cuMemcpyDtoHAsync_v2").Ref(),
			schema.Copy{Time: 30_000_500_000, Duration: 4_000, Bytes: 4, Dst: 0x5600_0000_0040, Src: 0x7f00_0000_0100},
		},
		{
			call("cuMemcpyDtoD_v2").Ref(),
			schema.Copy{
				Time: 30_000_600_000, Duration: 2_000, Result: 1, Bytes: 1 << 33, Dst: 0x7f00_0000_0000,
				Src: 0x7f20_0000_0000,
			},
		},
		{
			call("cuMemcpy2DAsync_v2").Ref(),
			schema.Copy{
				Time: 30_000_610_000, Duration: 2_000, Bytes: 640 * 480, Dst: 0x7f00_0000_0000, Src: 0x5600_0000_0000,
			},
		},
		{
			call("cuMemsetD32Async").Ref(),
			schema.Copy{Time: 30_000_620_000, Duration: 2_000, Bytes: 4 << 20, Dst: 0x7f00_0000_0000},
		},
		{
			call("cuMemsetD8_v2").Ref(),
			schema.Copy{Time: 30_000_630_000, Duration: 9_000, Bytes: 100, Dst: 0x7f00_0000_0000},
		},
		{
			record("cuMemcpyDtoDAsync_v2"),
			schema.Copy{
				Time: 30_000_640_000, Duration: 1_000, Bytes: 256, Dst: 0x7f00_0000_0000, Src: 0x7f20_0000_0000,
			},
		},
		{
			schema.CallRef{Symbol: "cuMemcpyDtoHAsync_v2", Op: schema.OpCopied, Direction: schema.DtoH},
			schema.Copy{Time: 30_000_500_000, Duration: 9_000, Bytes: 4, HostMem: schema.HostMemPinned},
		},
		{
			schema.CallRef{Symbol: "cuMemcpyHtoDAsync_v2", Op: schema.OpCopiedBehind, Direction: schema.HtoD},
			schema.Copy{Time: 30_000_800_000, Duration: 900_000, Bytes: 4096, HostMem: schema.HostMemPageable},
		},
	} {
		e.Thread, e.GPU, e.Call, e.CUDAStream = thread, gpu, b.Call(e.call), legacy
		b.AddCopy(&e.Copy)
	}
	return bytes.Clone(b.Encode(header(1 << 33)))
}

func syncGolden() []byte {
	b := schema.NewBuilder(schema.KindSync)
	thread := b.Thread(schema.Thread{Process: b.Process(train), TID: 4242, Comm: "python3"})
	gpu := b.GPU(h200)
	legacy, own := b.CUDAStream(0), b.CUDAStream(0x5540)
	const first, second = 0x5570, 0x5580
	for _, e := range []struct {
		symbol string
		schema.Sync
	}{
		{"cuStreamCreateWithPriority", schema.Sync{Time: 40_000_000_000, Duration: 20_000, CUDAStream: own}},
		{"cuEventRecord", schema.Sync{Time: 40_000_100_000, Duration: 700, CUDAStream: own, CUDAEvent: first}},
		{"cuEventRecord", schema.Sync{Time: 40_000_200_000, Duration: 700, CUDAStream: own, CUDAEvent: second}},
		{"cuStreamWaitEvent", schema.Sync{Time: 40_000_210_000, Duration: 500, CUDAStream: legacy, CUDAEvent: second}},
		{
			"cuEventQuery",
			schema.Sync{Time: 40_000_220_000, Duration: 400, Result: 600, CUDAStream: legacy, CUDAEvent: second},
		},
		{"cuStreamSynchronize", schema.Sync{Time: 40_000_230_000, Duration: 3_000_000, CUDAStream: own}},
		{
			"cuEventElapsedTime_v2",
			schema.Sync{
				Time: 40_003_300_000, Duration: 600, CUDAStream: legacy, CUDAEvent: first, Until: second,
				Elapsed: 2_345_678,
			},
		},
		{
			"cuCtxSynchronize",
			schema.Sync{Time: 40_003_400_000, Duration: 10_000, CUDAStream: legacy, CUDAEvent: 0x5500_0000_0100},
		},
		{"cuStreamDestroy_v2", schema.Sync{Time: 40_003_500_000, Duration: 9_000, CUDAStream: own}},
	} {
		e.Thread, e.GPU, e.Call = thread, gpu, b.Call(call(e.symbol).Ref())
		b.AddSync(&e.Sync)
	}
	b.AddSync(&schema.Sync{
		Time: 40_003_600_000, Duration: 190_000, Thread: thread, GPU: gpu, CUDAStream: own,
		Call: b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpResume}),
	})
	return bytes.Clone(b.Encode(header(3)))
}

func tensorGolden() []byte {
	b := schema.NewBuilder(schema.KindTensor)
	thread := b.Thread(schema.Thread{Process: b.Process(train), TID: 4242, Comm: "python3"})
	card := h200
	card.Bytes = 150_754_820_096
	gpu := b.GPU(card)
	const report = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
	alloc := b.Call(schema.CallRef{Symbol: report, Op: schema.OpBlockAlloc})
	free := b.Call(schema.CallRef{Symbol: report, Op: schema.OpBlockFree})
	for _, e := range []schema.Tensor{
		{Time: 50_000_000_000, Call: alloc, Ptr: 0x7f40_0000_0000, Bytes: 512, Allocated: 512, Reserved: 2 << 20},
		{
			Time: 50_000_010_000, Call: alloc, Ptr: 0x7f40_0000_0200, Bytes: 3 << 20, Allocated: 3<<20 + 512,
			Reserved: 22 << 20,
		},
		{Time: 50_000_030_000, Call: free, Ptr: 0x7f40_0000_0000, Bytes: 512, Allocated: 3 << 20, Reserved: 22 << 20},
	} {
		e.Thread, e.GPU = thread, gpu
		b.AddTensor(&e)
	}
	return bytes.Clone(b.Encode(header(4)))
}

func hostGolden() []byte {
	b := schema.NewBuilder(schema.KindHost)
	b.GPU(schema.GPU{UUID: h200.UUID, Name: "NVIDIA H200", Bus: "0000:1b:00.0"})
	b.GPU(schema.GPU{
		UUID: "GPU-00000000-1111-2222-3333-444444444444", Ordinal: 1, Name: "NVIDIA H200", Bus: "0000:43:00.0",
	})
	b.Linux, b.Producer = "6.8.0-45-generic", "1.0.0"
	b.Libraries = []schema.Library{
		{
			Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", Inode: 1_311_768, Attached: 225, Stepped: 1,
			Absent: []string{"cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync_v2_ptsz"}, Failed: []string{"cuLaunchGrid"},
		},
		{Path: "/proc/4242/root/usr/local/cuda/compat/libcuda.so.1", Inode: 77, Attached: 227},
	}
	b.Coverage = []schema.Coverage{
		{
			Process: b.Process(train), Asked: 611, Outside: []string{"cuMemBatchDecompressAsync", "cuTexRefSetArray"},
			ExportTables: 4,
		},
		{Process: b.Process(idle), Asked: 40},
	}
	b.Ends = []schema.End{
		{Kind: schema.KindMemory, Seq: 17, Through: 60_000_000_000},
		{Kind: schema.KindTensor, Seq: 0, Through: 60_000_000_000},
	}
	return bytes.Clone(b.Encode(header(12)))
}

func rankGolden() []byte {
	b := schema.NewBuilder(schema.KindRank)
	b.Origin = "gpu01.example"
	thread := b.Thread(schema.Thread{Process: b.Process(train), TID: 4242, Comm: "python3"})
	for _, e := range []schema.Rank{
		{Time: 60_000_000_000, To: schema.Launching, Count: 25_000},
		{Time: 60_000_000_000, To: schema.CopyingDtoH, Duration: 7_000_000, Count: 250, Bytes: 1 << 30},
		{
			Time: 60_000_000_000, From: schema.CopyingDtoH, To: schema.CopyingHtoD, Duration: 1_400_000_000, Count: 250,
		},
		{Time: 65_000_000_000},
	} {
		e.Thread = thread
		b.AddRank(&e)
	}
	h := header(2)
	h.Host, h.Run, h.Lost = train.Job, 60_000_000_000, [schema.NumLosses]uint64{}
	return bytes.Clone(b.Encode(h))
}

// smallGolden is the annotated example of docs/wire.md.
func smallGolden() []byte {
	b := schema.NewBuilder(schema.KindLaunch)
	process := b.Process(schema.Process{PID: 4242, Start: 9, UID: 1000, Comm: "a", User: "ada"})
	thread := b.Thread(schema.Thread{Process: process, TID: 4243, Comm: "a"})
	gpu := b.GPU(schema.GPU{UUID: "GPU-1"})
	kernel := schema.LaunchShape{
		Call: b.Call(call("cuLaunchKernel").Ref()), Func: b.Func(schema.Func{Name: "_Z1kv", Handle: 0x5510}),
		Grid: [3]uint32{1000, 1, 1}, Block: [3]uint32{256, 1, 1},
	}
	for i, blocks := range []uint32{1000, 1000, 500} {
		kernel.Grid[0] = blocks
		b.AddLaunch(&schema.Launch{
			Time: schema.KTime(100 + 200*i), Thread: thread, GPU: gpu, Shape: b.Shape(kernel),
			CUDAStream: b.CUDAStream(0x5540),
		})
	}
	return bytes.Clone(b.Encode(&schema.Header{
		Cluster: "lab", Host: "gpu01", BootID: "b1", Run: 8, Seq: 1, ClockOffset: 1000,
	}))
}

// newerMinorGolden is a batch of a later minor version: every unknown thing beside a known one.
func newerMinorGolden() []byte {
	later := []any{1, "later", object{"a", nil}}
	return pack(object{
		"v", 9, "k", "memory", "cl", "lab", "h", "gpu01.example", "boot", "b", "run", 1, "seq", 3, "n", 2, "off", -5,
		"t0", 100, "t1", 101, "lost", object{"spool", 1}, "weather", object{"sky", []any{"blue", 1.5, nil, true}},
		"procs", []any{[]any{4242, 9, 1000, "python3", "", "", 0, "ada", 17, "/a", "pod", "unit", "job", 2, 4,
			"later", later}},
		"threads", []any{[]any{0, 4243}}, // a short row: comm is empty
		"gpus", []any{[]any{"GPU-1", 0, 1, "model", "bus", 80, later}, []any{"GPU-2"}},
		"calls", []any{
			[]any{"cuMemTeleport", "teleport", "device", "HtoD", 7},
			[]any{"cuMemAlloc_v2", "alloc", "device", ""},
		},
		"funcs", []any{[]any{"k", 7, 1, later}, []any{"e"}},
		"graphs", []any{[]any{1, 0, []any{0, 4}, later}, []any{1}},
		"ctxs", []any{[]any{5, 2, later}},
		"libs", []any{[]any{"/lib", 1, 2, 3, []any{"absent"}, []any{"failed"}, later}},
		"cover", []any{[]any{0, 1, []any{"outside"}, 2, later}},
		"ends", []any{[]any{"launch", 1, 2, later}, []any{"copy"}},
		"cols", object{
			"t", []any{100, 1, []byte{0, 1}}, "th", []any{0, 0, []byte{}}, "c", []any{0, 1, []byte{0, 1}},
			"zz", []any{"a column", "of another form"}, "b", []any{512, 0, []byte{}}, "cx", []any{0, 1, []byte{1, 0}},
		},
	})
}

// newerKindGolden is a batch of a kind that this version does not know.
func newerKindGolden() []byte {
	return pack(object{"v", 9, "k", "texture", "cl", "lab", "h", "gpu01.example", "boot", "b", "seq", 1, "n", 1,
		"cols", object{
			"t", []any{100, 0, []byte{}}, "texels", []any{3, 0, []byte{}},
		}})
}

func TestEncodeWritesGoldenBytes(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			got, path := g.bytes(), filepath.Join("testdata", g.name+".golden")
			if *update {
				write(t, path, got)
			}
			if want := read(t, path); !bytes.Equal(got, want) {
				t.Errorf("encodes to\n%x, want\n%x", got, want)
			}
		})
	}
}

// TestGoldenRows decodes every golden message and compares its rows as text.
func TestGoldenRows(t *testing.T) {
	d := schema.NewDecoder()
	var b schema.Batch // reused, as a consumer does
	for _, m := range released(t) {
		if err := d.Decode(m.data, &b); err != nil {
			t.Errorf("%s: %v", m.path, err)
			continue
		}
		text := rowsText(&b)
		if *update {
			write(t, twin(m.path), []byte(text))
		}
		if want := string(read(t, twin(m.path))); text != want {
			t.Errorf("%s: rows\n%s\nwant\n%s", m.path, text, want)
		}
	}
}

type message struct {
	path string
	data []byte
}

// released is every golden file.
func released(tb testing.TB) []message {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) < len(goldens) {
		tb.Fatalf("%d golden files, %v", len(files), err)
	}
	messages := make([]message, len(files))
	for i, path := range files {
		messages[i] = message{path, read(tb, path)}
	}
	return messages
}

// TestPythonReader runs examples/read_batch.py on every golden file.
func TestPythonReader(t *testing.T) {
	python := ""
	for _, candidate := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(candidate, "-c", "import msgpack").Run() == nil {
			python = candidate
			break
		}
	}
	if python == "" {
		if os.Getenv("GPUTAP_REQUIRE_PYTHON") == "1" {
			t.Fatal("no python3 with msgpack (Debian: apt-get install python3-msgpack)")
		}
		t.Skip("no python3 with msgpack (Debian: apt-get install python3-msgpack)")
	}
	for _, m := range released(t) {
		out, err := exec.Command(python, "../examples/read_batch.py", m.path).Output()
		if err != nil {
			t.Errorf("%s: %v", m.path, err)
			continue
		}
		if want := read(t, twin(m.path)); !bytes.Equal(out, want) {
			t.Errorf("%s: python prints\n%s\nwant\n%s", m.path, out, want)
		}
	}
}

func twin(path string) string { return path[:len(path)-len("golden")] + "txt" }

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
