package event

import (
	"fmt"
	"testing"
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
