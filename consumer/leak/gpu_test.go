package leak

import (
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestLateUUIDCountsAllMemoryOfTheGPU: a program allocates before it asks which GPU it has. No other call of that class
// follows.
func TestLateUUIDCountsAllMemoryOfTheGPU(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		call func(p *consumertest.Process)
	}{
		{"an answer of cuMemGetInfo names it", func(p *consumertest.Process) {
			p.MemInfo(5000, 8000, 30)
		}},
		{"an allocation of a new class names it", func(p *consumertest.Process) {
			p.Call("cuMemHostAlloc", 42, schema.Memory{Time: 30, Ptr: 0x3000, Bytes: 5})
		}},
		{"a later allocation of a known class names it", func(p *consumertest.Process) {
			p.Call("cuMemAllocManaged", 42, schema.Memory{Time: 30, Ptr: 0x3000, Bytes: 0})
		}},
	} {
		h := consumertest.Memory(t, "gpu-01")
		p := h.Process(42, 1, "train")
		p.GPU = &schema.GPU{Ordinal: 3}
		p.Call("cuMemAllocManaged", 42, schema.Memory{Time: 10, Ptr: 0x2000, Bytes: 100})
		p.Alloc(42, 0x1000, 1000, 11, 1)
		p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: 3}
		row.call(p)
		other := h.Process(43, 1, "asks") // the GPU has another ordinal there
		other.GPU = &schema.GPU{UUID: "GPU-1"}
		other.MemInfo(5000, 8000, 41)
		tracker := New(Config{})
		apply(t, tracker, h.Batch())
		r := tracker.Report().Processes
		if got := r[1].GPUs[0].Info.TrackedBytes; got != 1100 {
			t.Errorf("%s: %d bytes of the GPU are tracked, want 1100", row.name, got)
		}
		if g, v := r[0].GPUs[0], r[0].Verdicts[0]; g.UUID != "GPU-1" || v.GPU != "GPU-1" {
			t.Errorf("%s: the memory is on %q, the verdict about %q", row.name, g.UUID, v.GPU)
		}
	}
}
