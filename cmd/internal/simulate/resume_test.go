package simulate

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestResumeRepublishesLastOfEachFlow expects the last complete entry of each host and kind.
func TestResumeRepublishesLastOfEachFlow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	w, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(host string, kind schema.Kind, seq uint64, withheld bool) {
		h := schema.Header{Cluster: "c", Host: host, Seq: seq}
		data := schema.NewBuilder(kind).Encode(&h)
		if err := w.write(&h, kind, &batch{data: data, withheld: withheld}); err != nil {
			t.Fatal(err)
		}
	}
	write("a", schema.KindMemory, 1, false)
	write("b", schema.KindMemory, 2, false)
	write("a", schema.KindMemory, 3, false)
	write("a", schema.KindLaunch, 4, false)
	write("b", schema.KindMemory, 5, true)
	whole, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write("a", schema.KindMemory, 6, false)
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, whole.Size()+9); err != nil {
		t.Fatal(err)
	}
	last, end, err := lastOfEach(path)
	if err != nil || end != whole.Size() {
		t.Errorf("whole entries end at %d, want %d: %v", end, whole.Size(), err)
	}
	got, decoder := map[flow]uint64{}, schema.NewDecoder()
	for from, data := range last {
		var b schema.Batch
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		got[from] = b.Seq
	}
	want := map[flow]uint64{
		{"c", "a", schema.KindMemory}: 3, {"c", "b", schema.KindMemory}: 2, {"c", "a", schema.KindLaunch}: 4,
	}
	if !maps.Equal(got, want) {
		t.Errorf("published again are %v, want %v", got, want)
	}
}
