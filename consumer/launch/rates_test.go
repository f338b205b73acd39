package launch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// launched is one launch of a test: of a kernel, or of an executable graph that runs kernel "a" twice and "node" once.
type launched struct {
	at     schema.KTime
	kernel string
	grid   uint32
	graph  uint64
}

const began = schema.KTime(90 * time.Second) // start of the process, after the boot

// send encodes launches as one batch and applies it.
func send(t testing.TB, h *Histogram, boot string, late bool, events ...launched) {
	t.Helper()
	b := schema.NewBuilder(schema.KindLaunch)
	thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 1, Start: began, Comm: "c", Late: late})})
	graphs := map[uint64]bool{}
	for _, e := range events {
		s := schema.LaunchShape{Grid: [3]uint32{e.grid, 2, 1}, Block: [3]uint32{32, e.grid, 1},
			Call: b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch}),
			Func: b.Func(schema.Func{Name: e.kernel})}
		if e.graph != 0 {
			s = schema.LaunchShape{Call: b.Call(schema.CallRef{Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch}),
				Func: b.Func(schema.Func{Handle: e.graph})}
			if !graphs[e.graph] {
				b.Graph(schema.Graph{Func: s.Func, Partial: e.graph%2 == 0, Nodes: []schema.Node{
					{Func: b.Func(schema.Func{Name: "a"}), Count: 2},
					{Func: b.Func(schema.Func{Name: "node"}), Count: 1},
				}})
			}
			graphs[e.graph] = true
		}
		b.AddLaunch(&schema.Launch{Time: e.at, Thread: thread, Shape: b.Shape(s), CUDAStream: b.CUDAStream(0)})
	}
	_ = h.Apply(consumertest.Decode(t, bytes.Clone(b.Encode(&schema.Header{Host: "h", BootID: boot}))))
}

// counts are the launches of one kernel, shape or graph: all, and those of the last complete minute.
type counts struct{ all, minute uint64 }

// TestRates compares counts, minutes and life with the list of all launches, which come in batches that cross minutes,
// slightly out of order, and with minutes without launches.
func TestRates(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	h, all, now := New(Config{}), []launched(nil), began
	for i := range 400 {
		batch := make([]launched, 1+r.IntN(30))
		for j := range batch {
			now += schema.KTime(r.Uint64N(uint64(20 * time.Millisecond)))
			batch[j] = launched{now - schema.KTime(r.Uint64N(1e6)), string(rune('a' + r.IntN(3))), 1 + r.Uint32N(12), 0}
			if r.IntN(5) == 0 {
				batch[j].graph = 1 + r.Uint64N(3)
			}
		}
		if r.IntN(40) == 0 {
			now += schema.KTime(r.Uint64N(uint64(130 * time.Second)))
		}
		send(t, h, "boot", false, batch...)
		if all = append(all, batch...); i%8 == 7 {
			compareRates(t, h, all)
		}
	}
	newest := slices.MaxFunc(all, func(a, b launched) int { return int(a.at) - int(b.at) })
	h.Tick(&schema.Header{Host: "h", BootID: "boot"}, newest.at+schema.KTime(5*time.Minute))
	if p := h.Report()[0]; p.LastMinute != 0 || !p.HasMinute || p.Launches == 0 {
		t.Errorf("five minutes later: %d launches in the last minute of %d", p.LastMinute, p.Launches)
	}
	send(t, h, "next", false, launched{at: began, kernel: "a"})
	if p := h.Report()[0]; p.HasMinute {
		t.Error("a process of an earlier boot has a last minute")
	}
}

func compareRates(t *testing.T, h *Histogram, all []launched) {
	t.Helper()
	last := schema.KTime(0)
	for _, e := range all {
		last = max(last, e.at)
	}
	minute := uint64(last/60e9) - 1
	known := minute*60e9 >= uint64(began) // the process lived through the whole minute
	want := map[string]counts{}
	add := func(key string, e launched, n uint64) {
		c := want[key]
		c.all += n
		if known && uint64(e.at)/60e9 == minute {
			c.minute += n
		}
		want[key] = c
	}
	shapes := map[string]bool{} // of each kernel only the first eight are kept
	for _, e := range all {
		if e.graph != 0 {
			add(fmt.Sprint("graph ", e.graph), e, 1)
			add("a", e, 2)
			add("node", e, 1)
			add("process", e, 3)
			continue
		}
		add(e.kernel, e, 1)
		add("process", e, 1)
		key := fmt.Sprint(e.kernel, " ", e.grid)
		if shapes[key] || len(shapesOf(shapes, e.kernel)) < 8 {
			shapes[key] = true
			add(key, e, 1)
		}
	}
	p := h.Report()[0]
	if p.HasMinute != known {
		t.Errorf("minute %d: known %v", minute, p.HasMinute)
	}
	got := map[string]counts{"process": {p.Launches, p.LastMinute}}
	for _, f := range p.Funcs {
		got[f.Name] = counts{f.Launches, f.LastMinute}
		for _, s := range f.Shapes {
			got[fmt.Sprint(f.Name, " ", s.Grid[0])] = counts{s.Launches, s.LastMinute}
		}
	}
	for _, g := range p.Graphs {
		got[fmt.Sprint("graph ", g.Handle)] = counts{g.Launches, g.LastMinute}
		if g.Kernels != 3 || g.Partial != (g.Handle%2 == 0) {
			t.Errorf("graph %d runs %d kernels, partial %v", g.Handle, g.Kernels, g.Partial)
		}
	}
	for key, n := range want {
		if got[key] != n {
			t.Fatalf("%s: got %v, want %v", key, got[key], n)
		}
	}
	if p.Life != time.Duration(last-began) {
		t.Errorf("life %s, want %s", p.Life, time.Duration(last-began))
	}
}

func shapesOf(shapes map[string]bool, kernel string) (list []string) {
	for key := range shapes {
		if key[:1] == kernel {
			list = append(list, key)
		}
	}
	return list
}

// The life of a late process begins with its first batch.
func TestLifeOfLateProcess(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	send(t, h, "b", true, launched{at: began + 100, kernel: "a"}, launched{at: began + 300, kernel: "a"})
	send(t, h, "b", true, launched{at: began + 800, kernel: "a"})
	if got := h.Report()[0].Life; got != 700 {
		t.Errorf("life %d ns, want 700", got)
	}
}

// TestGaps compares the distributions with the sorted list of gaps.
func TestGaps(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	b := schema.NewBuilder(schema.KindSync)
	thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 1, Start: 1})})
	list, others := map[uint64][]uint64{}, 0
	for i := range 3000 {
		q, ns := uint64(i%3), r.Uint64N(1<<r.Uint64N(40))
		if i >= 2000 {
			q = uint64(100 + i) // more CUDA streams than are kept
		}
		ref := schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpResume}
		if i%7 == 0 {
			ref = schema.CallRef{Symbol: "cuStreamSynchronize", Op: schema.OpSync}
		} else if q < 3 || len(list) < maxGapStreams {
			list[q] = append(list[q], ns)
		} else {
			others++
		}
		b.AddSync(&schema.Sync{Time: schema.KTime(i), Duration: ns, Thread: thread, Call: b.Call(ref),
			CUDAStream: b.CUDAStream(q)})
	}
	h := New(Config{})
	_ = h.Apply(consumertest.Decode(t, bytes.Clone(b.Encode(&schema.Header{Host: "h", BootID: "b"}))))
	p := h.Report()[0]
	if len(p.Gaps) != maxGapStreams+1 || len(p.Calls) != 0 {
		t.Fatalf("%d distributions, calls %v", len(p.Gaps), p.Calls)
	}
	for _, g := range p.Gaps {
		if g.Others {
			if g.Count != uint64(others) || others == 0 {
				t.Errorf("%d gaps of other CUDA streams, want %d", g.Count, others)
			}
			continue
		}
		want := list[g.CUDAStream]
		slices.Sort(want)
		sum := uint64(0)
		for _, ns := range want {
			sum += ns
		}
		if g.Count != uint64(len(want)) || g.Sum != sum || g.Most != want[len(want)-1] {
			t.Errorf("CUDA stream %d: %d gaps of %d ns, max %d", g.CUDAStream, g.Count, g.Sum, g.Most)
		}
		for q, got := range map[float64]float64{.5: g.P50, .9: g.P90, .99: g.P99} {
			exact := float64(want[max(0, int(q*float64(len(want))+.999999)-1)]) / 1e9
			if got < exact || got > max(2*exact, 1e-9) {
				t.Errorf("CUDA stream %d: quantile %v is %v, want %v to twice that", g.CUDAStream, q, got, exact)
			}
		}
	}
}

// TestSizes compares both histograms with the launches, in native and in classic buckets.
func TestSizes(t *testing.T) {
	t.Parallel()
	h, blocks := New(Config{}), []uint64(nil)
	r := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		grid := r.Uint32N(1 << r.Uint32N(30))
		send(t, h, "b", false, launched{at: began, kernel: "k", grid: grid}, launched{at: began, graph: 1})
		blocks = append(blocks, 2*uint64(grid))
	}
	metrics := make(chan prometheus.Metric, 100)
	h.Collect(metrics)
	close(metrics)
	for m := range metrics {
		if m.Desc() != gridBlocks {
			continue
		}
		var out dto.Metric
		if err := m.Write(&out); err != nil {
			t.Fatal(err)
		}
		atMost := func(limit float64) (n uint64) {
			for _, b := range blocks {
				if float64(b) <= limit {
					n++
				}
			}
			return n
		}
		if got := out.GetHistogram().GetSampleCount(); got != 200 || len(out.GetHistogram().GetBucket()) > 12 {
			t.Errorf("%d launches in %d classic buckets", got, len(out.GetHistogram().GetBucket()))
		}
		for _, b := range out.GetHistogram().GetBucket() {
			if want := atMost(b.GetUpperBound()); b.GetCumulativeCount() != want {
				t.Errorf("%d launches up to %v blocks, want %d", b.GetCumulativeCount(), b.GetUpperBound(), want)
			}
		}
		span, sum, n := out.GetHistogram().GetPositiveSpan()[0], uint64(0), int64(0)
		for i, delta := range out.GetHistogram().GetPositiveDelta() {
			n += delta
			sum += uint64(n)
			limit := float64(uint64(1) << (int(span.GetOffset()) + i))
			if want := atMost(limit); sum != want {
				t.Errorf("native: %d launches up to %v blocks, want %d", sum, limit, want)
			}
		}
		return
	}
	t.Error("there is no histogram of blocks")
}
