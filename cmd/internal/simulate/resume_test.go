package simulate

import (
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
	write := func(host string, kind schema.Kind, data string, withheld bool) {
		h := schema.Header{Cluster: "c", Host: host}
		if err := w.write(&h, &batch{kind: kind, data: []byte(data), withheld: withheld}); err != nil {
			t.Fatal(err)
		}
	}
	write("a", schema.KindMemory, "a1", false)
	write("b", schema.KindMemory, "b1", false)
	write("a", schema.KindMemory, "a2", false)
	write("a", schema.KindLaunch, "l1", false)
	write("b", schema.KindMemory, "withheld", true)
	whole, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write("a", schema.KindMemory, "torn", false)
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, whole.Size()+9); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	last, end, err := lastOfEach(file)
	if err != nil || end != whole.Size() {
		t.Errorf("whole entries end at %d, want %d: %v", end, whole.Size(), err)
	}
	got := map[string]bool{}
	for _, e := range last {
		got[e.Host+"/"+e.Kind.String()+"/"+string(e.Data)] = true
	}
	if len(last) != 3 || !got["a/memory/a2"] || !got["b/memory/b1"] || !got["a/launch/l1"] {
		t.Errorf("published again are %v", got)
	}
}
