package fold

import (
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestNewHasTheDefaultOptions: a fold of the registry expires processes exactly when its program does.
func TestNewHasTheDefaultOptions(t *testing.T) {
	for _, row := range []struct {
		name string
		fold Fold
		want int // processes that are kept
	}{
		{"New", ByName("leak").New(), 2},
		{"NewUnlimited", ByName("leak").NewUnlimited(), 3},
	} {
		tracker := row.fold.(*Memory)
		h := consumertest.Memory(t, "gpu-01")
		keep := schema.KTime(config.DefaultLeakCommand().Leak.KeepEnded)
		for i, at := range []schema.KTime{10, keep / 2, keep + 20} {
			h.Process(uint32(42+i), at, "job").Alloc(1, 0x1000, 8, at, 1).Exit(at + 5)
			if err := tracker.Apply(h.Batch()); err != nil {
				t.Fatal(err)
			}
		}
		if got := tracker.Tracker.Report().Processes; len(got) != row.want || got[0].ID.PID != uint32(45-row.want) {
			t.Errorf("%s: %d processes are kept, want %d: %+v", row.name, len(got), row.want, got)
		}
	}
}

func TestRegistryNamesEachFoldOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range All() {
		if e.Name() != e.New().Name() || seen[e.Name()] || ByName(e.Name()) != e || len(e.Kinds()) == 0 {
			t.Errorf("%s is a fold %s with kinds %v, seen before: %t", e.Name(), e.New().Name(), e.Kinds(),
				seen[e.Name()])
		}
		seen[e.Name()] = true
	}
	if ByName("none") != nil {
		t.Error("an unknown name has a fold")
	}
}
