package stub

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestImagesHasTheLayoutOfTheStub: offsets and sizes are those of stub.h.
func TestImagesHasTheLayoutOfTheStub(t *testing.T) {
	dir, data := t.TempDir(), make([]byte, truthBytes)
	copy(data, "GPUTRUTH")
	put := func(at int, n uint64) { binary.LittleEndian.PutUint64(data[at:], n) }
	put(liveAt, 9)
	put(usedAt, 3)
	data[pidAt] = 42
	for i, name := range []string{"cuInit", "cuMemAlloc_v2", "cuMemFree_v2"} {
		copy(data[callsAt+i*callBytes:], name)
	}
	put(callsAt+callBytes+48, 5)
	put(callsAt+callBytes+56, 2)
	unfinished := append([]byte{0}, data[1:]...)
	for name, data := range map[string][]byte{"42.77": data, "43.78": unfinished, "44.79": data[:100]} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []Image{{PID: 42, Loaded: 77, Live: 9, Calls: map[string]uint64{"cuMemAlloc_v2": 7}}}
	if got, err := Images(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}
