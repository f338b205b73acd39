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

// golden is one message with the name of its files. Files of a released form are never changed:
// a new form adds files.
type golden struct {
	name  string
	bytes func() []byte
}

var goldens = []golden{
	{"memory_v1", memoryGolden},
	{"launch_v1", launchGolden},
	{"copy_v1", copyGolden},
	{"host_v1", hostGolden},
	{"small_v1", smallGolden},
	{"forward_v1", forwardGolden},
	{"forward_kind_v1", forwardKindGolden},
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
		Container: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	}
	idle = schema.Process{PID: 7, Start: 1_000, Comm: "tr\xffin", Late: true} // a comm is bytes
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

func memoryGolden() []byte {
	b := schema.NewBuilder(schema.KindMemory)
	main := b.Thread(schema.Thread{Process: b.Process(train), TID: 4242, Comm: "python3"})
	other := b.Thread(schema.Thread{Process: b.Process(idle), TID: 8, Comm: "w"})
	gpu := b.GPU(h200)
	for _, e := range []struct {
		symbol string
		schema.Memory
	}{
		{"cuMemAlloc_v2", schema.Memory{Time: 10_000_000_000, Duration: 1500, Thread: main, GPU: gpu, Ptr: 0x7f00_0000_0000, Bytes: 2 << 20}},
		{"cuMemAlloc_v2", schema.Memory{Time: 10_000_002_000, Duration: 900, Thread: main, GPU: gpu, Result: 2, Bytes: 1 << 40}},
		{"cuMemCreate", schema.Memory{Time: 10_000_004_000, Duration: 70_000, Thread: other, Ptr: 0x5500_0000_1000, Bytes: 20 << 20}},
		{"cuMemMap", schema.Memory{Time: 10_000_080_000, Duration: 65, Thread: other, Ptr: 0x7f10_0000_0000, Bytes: 20 << 20, Aux: 0x5500_0000_1000}},
		{"cuMemFree_v2", schema.Memory{Time: 10_000_090_000, Duration: 300, Thread: main, GPU: gpu, Ptr: 0x7f00_0000_0000}},
		{"process_exit", schema.Memory{Time: 10_000_100_000, Thread: other}},
	} {
		e.Call = b.Call(call(e.symbol))
		b.AddMemory(&e.Memory)
	}
	return bytes.Clone(b.Encode(header(1)))
}

func launchGolden() []byte {
	b := schema.NewBuilder(schema.KindLaunch)
	thread := b.Thread(schema.Thread{Process: b.Process(train), TID: 4250, Comm: "pt_main"})
	gpu := b.GPU(h200)
	kernel, graph := b.Call(call("cuLaunchKernel")), b.Call(call("cuGraphLaunch"))
	axpy := b.Func(schema.Func{Name: "_Z4axpyIfEvT_PS0_S1_i", Handle: 0x5510})
	unseen := b.Func(schema.Func{Handle: 0x5520})
	exec := b.Func(schema.Func{Handle: 0x5530})
	wide := b.Shape(schema.LaunchShape{Call: kernel, Func: axpy, Grid: [3]uint32{4096, 1, 1}, Block: [3]uint32{256, 1, 1}, SharedBytes: 1024})
	tall := b.Shape(schema.LaunchShape{Call: kernel, Func: unseen, Grid: [3]uint32{1, 65535, 2}, Block: [3]uint32{32, 4, 1}})
	whole := b.Shape(schema.LaunchShape{Call: graph, Func: exec})
	legacy, own := b.CUDAStream(0), b.CUDAStream(0x5540)
	for i, shape := range []uint32{wide, wide, tall, whole, wide} {
		q := legacy
		if i > 2 {
			q = own
		}
		b.AddLaunch(&schema.Launch{Time: schema.KTime(20_000_000_000 + 1000*i), Thread: thread, GPU: gpu, Shape: shape, CUDAStream: q})
	}
	return bytes.Clone(b.Encode(header(2)))
}

func copyGolden() []byte {
	b := schema.NewBuilder(schema.KindCopy)
	thread := b.Thread(schema.Thread{Process: b.Process(train), TID: 4242, Comm: "python3"})
	gpu := b.GPU(h200)
	legacy := b.CUDAStream(0)
	for _, e := range []struct {
		symbol string
		schema.Copy
	}{
		{"cuMemcpyHtoD_v2", schema.Copy{Time: 30_000_000_000, Duration: 400_000, Bytes: 16 << 20, Dst: 0x7f00_0000_0000, Src: 0x5600_0000_0000}},
		{"cuMemcpyDtoHAsync_v2", schema.Copy{Time: 30_000_500_000, Duration: 4_000, Bytes: 4, Dst: 0x5600_0000_0040, Src: 0x7f00_0000_0100}},
		{"cuMemcpyDtoD_v2", schema.Copy{Time: 30_000_600_000, Duration: 2_000, Result: 1, Bytes: 1 << 33, Dst: 0x7f00_0000_0000, Src: 0x7f20_0000_0000}},
	} {
		e.Thread, e.GPU, e.Call, e.CUDAStream = thread, gpu, b.Call(call(e.symbol)), legacy
		b.AddCopy(&e.Copy)
	}
	return bytes.Clone(b.Encode(header(1 << 33)))
}

func hostGolden() []byte {
	b := schema.NewBuilder(schema.KindHost)
	b.GPU(h200)
	b.Linux, b.Producer = "6.8.0-45-generic", "1.0.0"
	b.Libraries = []schema.Library{
		{Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", Inode: 1_311_768, Attached: 38, Stepped: 1, Absent: []string{"cuMemcpyDtoD_v2_ptds", "cuLaunchKernelEx_ptsz"}},
		{Path: "/proc/4242/root/usr/local/cuda/compat/libcuda.so.1", Inode: 77, Attached: 40},
	}
	return bytes.Clone(b.Encode(header(12)))
}

// smallGolden is the annotated example of docs/wire.md.
func smallGolden() []byte {
	b := schema.NewBuilder(schema.KindMemory)
	thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 4242, Start: 9, UID: 1000, Comm: "a"}), TID: 4243, Comm: "a"})
	gpu := b.GPU(schema.GPU{UUID: "GPU-1"})
	for i, bytes := range []uint64{512, 1024, 262144} {
		b.AddMemory(&schema.Memory{
			Time: schema.KTime(100 + 200*i), Duration: 5, Thread: thread, Call: b.Call(call("cuMemAlloc_v2")), GPU: gpu,
			Ptr: 0x7000 + 0x100*uint64(i), Bytes: bytes,
		})
	}
	return bytes.Clone(b.Encode(&schema.Header{Cluster: "lab", Host: "gpu01", BootID: "b1", Run: 8, Seq: 1, ClockOffset: 1000}))
}

// forwardGolden is what a later minor version may send: every unknown thing beside a known one.
func forwardGolden() []byte {
	return pack(object{
		"v", 9, "k", "memory", "cl", "lab", "h", "gpu01.example", "boot", "b", "run", 1, "seq", 3, "n", 2, "off", -5,
		"t0", 100, "t1", 101, "lost", object{"spool", 1}, "weather", object{"sky", []any{"blue", 1.5, nil, true}},
		"procs", []any{[]any{4242, 9, 1000, "python3", "", "", 0, "extra", []any{1, 2}}},
		"threads", []any{[]any{0, 4243}}, // a short row: comm is empty
		"calls", []any{
			[]any{"cuMemTeleport", "teleport", "device", "HtoD", 7},
			[]any{"cuMemAlloc_v2", "alloc", "device", ""},
		},
		"cols", object{
			"t", []any{100, 1, []byte{0, 1}}, "th", []any{0, 0, []byte{}}, "c", []any{0, 1, []byte{0, 1}},
			"zz", []any{"a column", "of another form"}, "b", []any{512, 0, []byte{}},
		},
	})
}

// forwardKindGolden is a batch of a kind that this version does not know.
func forwardKindGolden() []byte {
	return pack(object{"v", 9, "k", "texture", "cl", "lab", "h", "gpu01.example", "boot", "b", "seq", 1, "n", 1, "cols", object{
		"t", []any{100, 0, []byte{}}, "texels", []any{3, 0, []byte{}},
	}})
}

func TestGolden(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			got := g.bytes()
			path := filepath.Join("testdata", g.name)
			var b schema.Batch
			if err := schema.NewDecoder().Decode(got, &b); err != nil {
				t.Fatal(err)
			}
			text := rowsText(&b)
			if *update {
				write(t, path+".golden", got)
				write(t, path+".txt", []byte(text))
			}
			if want := read(t, path+".golden"); !bytes.Equal(got, want) {
				t.Errorf("encodes to\n%x, want\n%x", got, want)
			}
			if want := string(read(t, path+".txt")); text != want {
				t.Errorf("rows\n%s\nwant\n%s", text, want)
			}
		})
	}
}

// TestGoldenFiles decodes every file of testdata: forms of earlier releases too.
func TestGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) < len(goldens) {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	d := schema.NewDecoder()
	var b schema.Batch // reused, as a consumer does
	for _, path := range files {
		if err := d.Decode(read(t, path), &b); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got, want := rowsText(&b), string(read(t, twin(path))); got != want {
			t.Errorf("%s: rows\n%s\nwant\n%s", path, got, want)
		}
	}
}

// TestPythonReader runs the example reader of another language on every golden file.
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
	files, _ := filepath.Glob("testdata/*.golden")
	for _, path := range files {
		out, err := exec.Command(python, "../examples/read_batch.py", path).Output()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if want := read(t, twin(path)); !bytes.Equal(out, want) {
			t.Errorf("%s: python prints\n%s\nwant\n%s", path, out, want)
		}
	}
}

func twin(path string) string { return path[:len(path)-len("golden")] + "txt" }

func read(t *testing.T, path string) []byte {
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
