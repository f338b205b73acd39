package stub

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// Offsets in struct stub_truth of stub.h, and its size.
const (
	pidAt      = 12
	liveAt     = 16
	usedAt     = 56
	callsAt    = 64
	callBytes  = 80
	kernelsAt  = 25664
	kernelSize = 104
	classesAt  = 38976
	contextAt  = 39040
	cardsAt    = 39064
	truthBytes = 39176
)

// TestImagesHasTheLayoutOfTheStub: offsets and sizes are those of stub.h.
func TestImagesHasTheLayoutOfTheStub(t *testing.T) {
	dir, data := t.TempDir(), make([]byte, truthBytes)
	if size := binary.Size(layout{}); size != truthBytes {
		t.Errorf("the layout has %d bytes, want %d", size, truthBytes)
	}
	copy(data, "GPUTRUTH")
	put := func(at int, n uint64) { binary.LittleEndian.PutUint64(data[at:], n) }
	data[pidAt] = 42
	put(liveAt, 9)
	put(liveAt+8, 2)
	put(liveAt+24, 10)
	put(liveAt+32, 3)
	put(usedAt, 3)
	for i, name := range []string{"cuInit", "cuMemAlloc_v2", "cuMemFree_v2"} {
		copy(data[callsAt+i*callBytes:], name)
	}
	put(callsAt+callBytes+48, 5)
	put(callsAt+callBytes+56, 2)
	put(callsAt+callBytes+64, 100)
	put(callsAt+callBytes+72, 7)
	copy(data[kernelsAt+kernelSize:], "add")
	put(kernelsAt+kernelSize+96, 4)
	put(classesAt+4*8, 6)
	put(contextAt, 11)
	put(contextAt+8, 12)
	put(contextAt+16, 13)
	copy(data[cardsAt+56:], "GPU-1")
	put(cardsAt+56+48, 9)
	second := append([]byte{}, data...)
	second[pidAt] = 43
	unfinished := append([]byte{0}, data[1:]...)
	for name, data := range map[string][]byte{
		"43.100": second, "42.77": data, "44.78": unfinished, "45.79": data[:100],
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := Image{
		PID: 42, Loaded: 77, LiveBytes: 9, LiveAllocations: 2, HostBytes: 10, HostAllocations: 3,
		Calls:        map[string]Call{"cuMemAlloc_v2": {OK: 5, Failed: 2, Bytes: 100, BusyNS: 7}},
		ContextBytes: 11, ContextAllocations: 12, Holders: 13,
		Classes: map[string]uint64{"vmm": 6}, Cards: map[string]uint64{"GPU-1": 9},
		Kernels: map[string]uint64{"add": 4},
	}
	later := first
	later.PID, later.Loaded = 43, 100
	want := []Image{first, later}
	if got, err := Images(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}
