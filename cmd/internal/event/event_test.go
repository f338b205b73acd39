package event

import (
	"fmt"
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestReaderNamesKernels reads more names than a Reader keeps, each twice, and some that are no mangled names.
func TestReaderNamesKernels(t *testing.T) {
	t.Parallel()
	var r Reader
	for _, tt := range []struct{ mangled, want string }{
		{"_Z4gemmPf", "gemm(float*)"}, {"plain", "plain"}, {"", "unknown"}, {"_Z4gemmPf", "gemm(float*)"},
	} {
		if got := r.kernel(tt.mangled); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.mangled, got, tt.want)
		}
	}
	most := 0
	for i := range 1 << 18 {
		name := fmt.Sprintf("f%07d", i)
		mangled := fmt.Sprintf("_Z8%sPf", name)
		for range 2 {
			if got := r.kernel(mangled); got != name+"(float*)" {
				t.Fatalf("%s is %s", mangled, got)
			}
		}
		most = max(most, len(r.kernels))
	}
	if most < 1000 || most*len("_Z8f0000000Pff0000000(float*)") > mostKernelBytes {
		t.Errorf("%d names are kept", most)
	}
}

// TestReaderDoesNotDemangleAgain reads launches of one kernel. To demangle a name allocates.
func TestReaderDoesNotDemangleAgain(t *testing.T) {
	var r Reader
	r.kernel("_Z4gemmPf")
	if n := testing.AllocsPerRun(100, func() { r.kernel("_Z4gemmPf") }); n != 0 {
		t.Errorf("%g allocations for a known name", n)
	}
}

// TestClassOfFrees names the class only of frees whose call tells it, or whose source does.
func TestClassOfFrees(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		symbol string
		op     schema.Op
		class  schema.MemClass
		bytes  uint64
		want   string
	}{
		{"cuMemAlloc_v2", schema.OpAlloc, schema.ClassDevice, 1, "device"},
		{"cuMemAlloc_v2", schema.OpAlloc, schema.ClassDevice, 0, "device"}, // it failed
		{"cuMemFree_v2", schema.OpFree, schema.ClassDevice, 0, ""},
		{"cuMemFreeAsync", schema.OpFree, schema.ClassPool, 0, ""},
		{"cuMemFreeHost", schema.OpFree, schema.ClassPinned, 0, "pinned"},
		{"cuArrayDestroy", schema.OpFree, schema.ClassArray, 0, "array"},
		{"cuMemRelease", schema.OpRelease, schema.ClassVMM, 0, "vmm"},
		{"cudaFree_v3020", schema.OpFree, schema.ClassManaged, 0, "managed"}, // of Nsight Systems
		{"cudaFree_v3020", schema.OpFree, schema.ClassDevice, 1, "device"},
	} {
		build := schema.NewBuilder(schema.KindMemory)
		call := build.Call(schema.CallRef{Symbol: tt.symbol, Op: tt.op, Class: tt.class})
		thread := build.Thread(schema.Thread{Process: build.Process(schema.Process{PID: 1}), TID: 1})
		build.AddMemory(&schema.Memory{Time: 1, Thread: thread, Call: call, Ptr: 8, Bytes: tt.bytes})
		var b schema.Batch
		if err := schema.NewDecoder().Decode(build.Encode(&schema.Header{Seq: 1}), &b); err != nil {
			t.Fatal(err)
		}
		var r Reader
		if got := r.Of(&b, 0).Class; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.symbol, got, tt.want)
		}
	}
}
