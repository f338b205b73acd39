package anomaly

import (
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	collapse      = "launch_collapse warning" + firing
	collapseOver  = "launch_collapse warning" + cleared
	moreAllocs    = "alloc_rate warning" + firing
	moreAllocOver = "alloc_rate warning" + cleared
)

// phase is so many windows in which a program does the same.
type phase struct {
	windows          int
	launches, allocs uint32 // in each
}

// phases runs a program from second 20 on.
func (w *world) phases(p *consumertest.Process, all ...phase) (end float64) {
	return w.phasesAt(p, 20, all...)
}

func (w *world) phasesAt(p *consumertest.Process, at float64, all ...phase) (end float64) {
	for _, ph := range all {
		for range ph.windows {
			if ph.launches > 0 {
				w.launch(p, ph.launches/2, at+2)
				w.launch(p, ph.launches-ph.launches/2, at+8)
			}
			for i := range ph.allocs {
				p.AllocPool(1, 1<<30+uint64(i)<<10, 512, 0, ktime(at+float64(i)/1e4))
			}
			at += 10
			w.tick(at, at)
		}
	}
	return at
}

// running returns the run of a scenario that consists of phases.
func running(all ...phase) func(*world, *consumertest.Process) {
	return func(w *world, p *consumertest.Process) { w.phases(p, all...) }
}

func repeated(n int, all ...phase) (many []phase) {
	for range n {
		many = append(many, all...)
	}
	return many
}

func TestLaunchCollapse(t *testing.T) {
	t.Parallel()
	steady := phase{windows: 40, launches: 100_000}
	for _, s := range []scenario{
		{"to a tenth", everything, running(steady, phase{20, 10_000, 0}), []string{collapse}},
		{"to a quarter, and back", everything, running(steady, phase{30, 25_000, 0}, phase{3, 95_000, 0}),
			[]string{collapse, collapseOver}},
		{"to almost nothing, and then to nothing", everything, running(steady, phase{30, 10, 0}, phase{5, 0, 0}),
			[]string{collapse, collapseOver}},
		{"for good: it is the usual rate after ten minutes", everything, running(steady, phase{200, 20_000, 0}),
			[]string{collapse, collapseOver}},
		{"with pauses in between", everything, running(append([]phase{steady}, repeated(10, phase{3, 10_000, 0},
			phase{1, 0, 0})...)...), []string{collapse}},
		{"from a noisy rate", everything, running(append(repeated(20, phase{1, 80_000, 0}, phase{1, 120_000, 0}),
			phase{20, 20_000, 0})...), []string{collapse}},
		{"longer than the phases before", everything, running(steady, phase{5, 10_000, 0}, steady,
			phase{30, 10_000, 0}), []string{collapse}},
		{"mode observe", rule.Config{Mode: rule.Observe}, running(steady, phase{20, 10_000, 0}),
			[]string{"launch_collapse info" + firing}},

		{"steady", everything, running(phase{100, 100_000, 0}), nil},
		{"half the rate", everything, running(steady, phase{60, 50_000, 0}), nil},
		{"too early", everything, running(phase{14, 100_000, 0}, phase{40, 10_000, 0}), nil},
		{"too few launches", everything, running(phase{40, 900, 0}, phase{60, 90, 0}), nil},
		{"validation for two minutes, and once for four", everything, running(slices.Concat(repeated(3, steady,
			phase{12, 20_000, 0}), []phase{steady, {23, 20_000, 0}, {5, 100_000, 0}})...), nil},
		{"a restart of the producer", everything, func(w *world, p *consumertest.Process) {
			at := w.phases(p, steady)
			for range 20 { // each run begins in the window and sees a part of it
				w.host.Header.Run = uint64(ktime(at + 7))
				w.launch(p, 10_000, at+8)
				at += 10
				w.tick(at, at)
			}
		}, nil},
		{"validation for two minutes, often", everything, running(repeated(6, steady, phase{12, 20_000, 0})...), nil},
		{"checkpoints: no launch for a minute", everything, running(repeated(6, steady, phase{6, 0, 0})...), nil},
		{"the program waits for input for ever", everything, running(steady, phase{200, 0, 0}), nil},
		{"a server with traffic by day", everything, running(append(repeated(20, phase{1, 100_000, 0},
			phase{1, 5_000, 0}, phase{1, 30_000, 0}), phase{40, 5_000, 0})...), nil},
		{"a model load, then training", everything, running(phase{20, 100, 0}, phase{60, 100_000, 0}), nil},
		{"the process ends", everything, func(w *world, p *consumertest.Process) {
			at := w.phases(p, steady, phase{10, 10_000, 0})
			p.Exit(ktime(at))
			w.tick(at, at+300)
		}, nil},
		{"another process takes its place", everything, func(w *world, p *consumertest.Process) {
			at := w.phases(p, steady)
			p.Exit(ktime(at))
			q := w.host.Process(43, ktime(at), "train")
			for i := range 40 {
				w.launch(q, 1000, at+10*float64(i))
			}
			w.tick(at, at+400)
		}, nil},
	} {
		s.test(t)
	}
}

// A program that begins to launch graphs makes fewer calls and runs as many kernels.
func TestGraphsAreNoCollapse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		partial bool
		nodes   uint32
		want    []string
	}{
		{"the graph holds the kernels", false, 100, nil},
		{"the graph is not fully known", true, 1, nil},
		{"the graph holds few", false, 5, []string{collapse}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, everything)
			p := w.process(42, "train")
			for i := range 80 {
				at := 20 + 10*float64(i)
				b := schema.NewBuilder(schema.KindLaunch)
				graph := b.Func(schema.Func{Handle: 9})
				b.Graph(schema.Graph{Func: graph, Partial: test.partial,
					Nodes: []schema.Node{{Func: b.Func(schema.Func{Name: "k"}), Count: test.nodes}}})
				shape, n := schema.LaunchShape{Func: b.Func(schema.Func{Name: "k"}),
					Call: b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})}, 2000
				if i >= 40 {
					shape, n = schema.LaunchShape{Func: graph,
						Call: b.Call(schema.CallRef{Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch})}, 20
				}
				recorded := b.Shape(schema.LaunchShape{Func: graph,
					Call: b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpRecord})})
				for k := range n {
					e := schema.Launch{Time: ktime(at + float64(k)/1000), Thread: threadOf(b, p), Shape: b.Shape(shape),
						CUDAStream: b.CUDAStream(0)}
					b.AddLaunch(&e)
					if i < 40 && k < 1000 {
						e.Shape = recorded // does not run
						b.AddLaunch(&e)
					}
				}
				w.send(b, schema.KindLaunch)
				w.tick(at+10, at+10)
			}
			w.want(test.want...)
		})
	}
}

// A batch may hold events of two windows. If all counted for the first, every second window would be empty.
func TestBatchesAreSplitAtWindows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	p := w.process(42, "train")
	at := w.phases(p, phase{40, 2000, 300})
	for range 10 {
		b := schema.NewBuilder(schema.KindLaunch)
		shape := b.Shape(schema.LaunchShape{Func: b.Func(schema.Func{Name: "k"}),
			Call: b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})})
		for k := range 600 {
			b.AddLaunch(&schema.Launch{Time: ktime(at + 9 + float64(k/300)), Thread: threadOf(b, p), Shape: shape,
				CUDAStream: b.CUDAStream(0)})
		}
		w.send(b, schema.KindLaunch)
		for k := range 2600 {
			p.AllocPool(1, 1<<30+uint64(k)<<10, 512, 0, ktime(at+9+float64(k/1300)))
		}
		at += 20
		w.tick(at-10, at)
	}
	w.want(moreAllocs, collapse)
}

func TestAllocationRate(t *testing.T) {
	t.Parallel()
	usual := phase{windows: 40, launches: 50_000, allocs: 300}
	for _, s := range []scenario{
		{"ten times as many", everything, running(usual, phase{6, 50_000, 3000}), []string{moreAllocs}},
		{"five times as many, and back", everything, running(usual, phase{6, 50_000, 1500}, usual),
			[]string{moreAllocs, moreAllocOver}},
		{"for good: it is the usual rate after ten minutes", everything, running(usual, phase{70, 50_000, 3000}),
			[]string{moreAllocs, moreAllocOver}},
		{"a caching allocator that is emptied after each step", everything, running(phase{1, 50_000, 20},
			phase{40, 50_000, 0}, phase{6, 50_000, 1500}), []string{moreAllocs}},
		{"without launches", everything, running(phase{40, 0, 300}, phase{6, 0, 2000}), []string{moreAllocs}},
		{"slightly more work, far more allocations", everything, running(usual, phase{6, 60_000, 4000}),
			[]string{moreAllocs}},
		{"mode observe", rule.Config{Mode: rule.Observe}, running(usual, phase{6, 50_000, 3000}),
			[]string{"alloc_rate info" + firing}},

		{"steady", everything, running(phase{80, 50_000, 2000}), nil},
		{"three times as many", everything, running(usual, phase{20, 50_000, 900}), nil},
		{"a server with little work gets much", everything, running(usual, phase{20, 500_000, 3000}), nil},
		{"two windows only", everything, running(usual, phase{2, 50_000, 3000}, usual), nil},
		{"too few", everything, running(phase{40, 50_000, 10}, phase{20, 50_000, 900}), nil},
		{"too early", everything, running(phase{28, 50_000, 100}, phase{20, 50_000, 3000}), nil},
		{"bursts as large came before", everything, running(usual, phase{2, 50_000, 2000}, usual,
			phase{6, 50_000, 3000}), nil},
		{"a caching allocator that starts", everything, running(phase{3, 100, 3000}, phase{80, 50_000, 0}), nil},
	} {
		s.test(t)
	}
}

// Windows that lost events are not judged, and a streak goes on after them.
func TestGapFreezesTheRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, only(func(c *rule.Config) { c.LaunchCollapse.Mode = rule.Alert }))
	p := w.process(42, "train")
	at := w.phases(p, phase{40, 100_000, 0})
	low := func(n int) {
		for range n {
			w.launch(p, 10_000, at+2)
			at += 10
			w.tick(at, at)
		}
	}
	low(10)
	for range 8 {
		w.host.Header.Lost[schema.LossBulkRing] += 1000
		low(1)
	}
	low(7)
	w.want()
	if n := w.suppressed("launch_collapse", "gap"); n != 8 {
		t.Errorf("%d findings were suppressed because of a gap, want 8", n)
	}
	low(1)
	w.want(collapse)
}

// A window without events is not the end of a streak, or of the process's work, if its events may have been lost.
func TestGapWithoutEvents(t *testing.T) {
	t.Parallel()
	usual := phase{windows: 40, launches: 50_000, allocs: 300}
	lose := func(w *world, windows int, at float64) float64 {
		for range windows {
			w.host.Header.Lost[schema.LossControlRing] += 1000
			w.process(43, "other").Free(1, 1<<20, ktime(at+5), 1)
			at += 10
			w.tick(at, at)
		}
		return at
	}
	for _, s := range []scenario{
		{"more allocations", only(func(c *rule.Config) { c.AllocRate.Mode = rule.Alert }),
			func(w *world, p *consumertest.Process) {
				at := lose(w, 1, w.phases(p, usual, phase{2, 50_000, 3000}))
				w.phasesAt(p, at, phase{1, 50_000, 3000})
			}, []string{moreAllocs}},
		{"fewer launches", only(func(c *rule.Config) { c.LaunchCollapse.Mode = rule.Alert }),
			func(w *world, p *consumertest.Process) {
				at := w.phases(p, phase{windows: 40, launches: 100_000}, phase{20, 10_000, 0})
				lose(w, 5, at)
			}, []string{collapse}},
	} {
		s.test(t)
	}
}

// A heartbeat may be the first to say that events were lost: before it, and after the last event.
func TestHeartbeatReportsALoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t, only(func(c *rule.Config) { c.LaunchCollapse.Mode = rule.Alert }))
	p := w.process(42, "train")
	at := w.phases(p, phase{40, 100_000, 0})
	for range 30 {
		w.host.Header.Lost[schema.LossBulkRing] += 1000
		w.apply(w.host.Heartbeat(ktime(at + 1)))
		w.launch(p, 10_000, at+2)
		at += 10
		w.tick(at, at)
	}
	w.want()
}
