package reference

import (
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// The ruler lets go of processes when gputap-leak does, no sooner and no later.
func TestKeepsAsTheCommands(t *testing.T) {
	fold := Folds["leak"]().(*leak.Tracker)
	h := consumertest.Memory(t, "gpu-01")
	keep := schema.KTime(config.DefaultLeakCommand().Leak.KeepEnded)
	for i, at := range []schema.KTime{10, keep / 2, keep + 20} {
		h.Process(uint32(42+i), at, "job").Alloc(1, 0x1000, 8, at, 1).Exit(at + 5)
		if err := fold.Apply(h.Batch()); err != nil {
			t.Fatal(err)
		}
	}
	if got := fold.Report().Processes; len(got) != 2 || got[0].ID.PID != 43 {
		t.Errorf("%d processes are kept, want 2: %+v", len(got), got)
	}
}
