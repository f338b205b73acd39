package fold

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestTensorsInSteadyMemoryAreSuspect: the driver sees one segment and no growth, and PyTorch keeps 12 MiB a minute in
// it. The tracker calls the process suspect, and raises leak_growth as the mode of all rules says.
func TestTensorsInSteadyMemoryAreSuspect(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		config.ModeDefault: {"leak_growth warning firing tensor"},
		config.ModeAlert:   {"leak_growth warning firing tensor"},
		config.ModeObserve: {"leak_growth info firing tensor"}, config.ModeOff: nil,
	} {
		var got []string
		c := config.DefaultLeak()
		c.Mode = mode
		m := MemoryOfRun(c, func(a alert.Alert) {
			got = append(got, fmt.Sprintf("%s %s %s %s", a.Rule, a.Severity, a.State, a.Evidence.Kind))
		})
		h := consumertest.Memory(t, "gpu-1")
		gpu := &schema.GPU{UUID: "GPU-1", Bytes: 80 << 30}
		p := h.Process(7, 5, "train")
		p.GPU = gpu
		p.Alloc(7, 1<<40, 16<<30, 10, 1)
		b, total := schema.NewBuilder(schema.KindTensor), uint64(0)
		header := h.Header
		for i := range schema.KTime(40) {
			at := (i + 1) * schema.KTime(time.Minute)
			p.Alloc(7, 1<<41, 1<<20, at, 1).Free(7, 1<<41, at+10, 1) // the driver works on
			total += 12 << 20
			thread := b.Thread(schema.Thread{Process: b.Process(p.Process), TID: 7})
			b.AddTensor(&schema.Tensor{Time: at, Thread: thread, GPU: b.GPU(*gpu), Ptr: 1<<40 + total, Bytes: 12 << 20,
				Call:      b.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockAlloc}),
				Allocated: total, Reserved: 16 << 30})
			header.Seq++
			for _, batch := range []*schema.Batch{h.Batch(), consumertest.Decode(t, b.Encode(&header))} {
				if err := m.Apply(batch); err != nil {
					t.Fatal(err)
				}
			}
			b.Reset()
			m.Tick(&header, at+20)
		}
		v := m.Tracker.Report().Processes[0].Verdicts[0]
		if v.State.String() != "suspect" || v.SuspectBytes == 0 || v.SuspectBytes > total ||
			v.FullIn < 80*time.Hour || v.FullIn > 120*time.Hour { // (80 - total) GiB at 12 MiB a minute
			t.Errorf("%s: %+v", mode, v)
		}
		if g := v.Groups; len(g) != 1 || g[0].TID != 7 || g[0].Class != "tensor" || g[0].SizeClass != 8<<20 ||
			g[0].Bytes != g[0].Allocations*12<<20 || g[0].Bytes < v.SuspectBytes ||
			v.At.Sub(g[0].Oldest) < 30*time.Minute {
			t.Errorf("%s: groups %+v", mode, g)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: raised %q, want %q", mode, got, want)
		}
	}
}
