package launch

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

// recording builds launch batches with graphs.
type recording struct {
	*schema.Builder
}

func (r *recording) add(op schema.Op, symbol string, f schema.Func, times int) {
	p := r.Process(schema.Process{PID: 1, Comm: "serve"})
	l := schema.Launch{
		Thread:     r.Thread(schema.Thread{Process: p, TID: 1}),
		Shape:      r.Shape(schema.LaunchShape{Call: r.Call(schema.CallRef{Symbol: symbol, Op: op}), Func: r.Func(f)}),
		CUDAStream: r.CUDAStream(0),
	}
	for range times {
		r.AddLaunch(&l)
	}
}

func (r *recording) graph(handle uint64, partial bool, nodes ...any) {
	g := schema.Graph{Func: r.Func(schema.Func{Handle: handle}), Partial: partial}
	for i := 0; i < len(nodes); i += 2 {
		g.Nodes = append(g.Nodes, schema.Node{Func: r.Func(schema.Func{Name: nodes[i].(string)}),
			Count: uint32(nodes[i+1].(int))})
	}
	r.Graph(g)
}

func TestGraphs(t *testing.T) {
	t.Parallel()
	launch := func(r *recording, handle uint64, times int) {
		r.add(schema.OpGraphLaunch, "cuGraphLaunch", schema.Func{Handle: handle}, times)
	}
	kernel := func(r *recording, name string, times int) {
		r.add(schema.OpLaunch, "cuLaunchKernel", schema.Func{Name: name}, times)
	}
	tests := []struct {
		name string
		fill func(r *recording)
		want string
	}{
		{"every launch runs every node", func(r *recording) {
			r.graph(9, false, "a", 2, "b", 1)
			launch(r, 9, 3)
		}, "graphs=3 partial=0 recorded=0 host=0 [a]=6/6 [b]=3/3"},
		{"direct launches of a graph's kernel", func(r *recording) {
			r.graph(9, false, "a", 2)
			launch(r, 9, 3)
			kernel(r, "a", 5)
		}, "graphs=3 partial=0 recorded=0 host=0 [a]=11/6"},
		{"two graphs share a kernel", func(r *recording) {
			r.graph(8, false, "a", 1)
			r.graph(9, false, "a", 10)
			launch(r, 8, 2)
			launch(r, 9, 3)
		}, "graphs=5 partial=0 recorded=0 host=0 [a]=32/32"},
		{"one graph launched through two symbols", func(r *recording) {
			r.graph(9, false, "a", 1)
			launch(r, 9, 2)
			r.add(schema.OpGraphLaunch, "cuGraphLaunch_ptsz", schema.Func{Handle: 9}, 3)
		}, "graphs=5 partial=0 recorded=0 host=0 [a]=5/5"},
		{"launches of partial graphs are counted", func(r *recording) {
			r.graph(9, true, "a", 2)
			launch(r, 9, 3)
		}, "graphs=3 partial=3 recorded=0 host=0 [a]=6/6"},
		{"an unknown graph", func(r *recording) {
			launch(r, 9, 3)
		}, "graphs=3 partial=3 recorded=0 host=0"},
		{"a graph without kernels", func(r *recording) {
			r.graph(9, false)
			launch(r, 9, 3)
		}, "graphs=3 partial=0 recorded=0 host=0"},
		{"a graph that was not launched", func(r *recording) {
			r.graph(9, false, "a", 1)
			kernel(r, "b", 1)
		}, "graphs=0 partial=0 recorded=0 host=0 [b]=1/0"},
		{"a node with count 0", func(r *recording) {
			r.graph(9, false, "a", 0)
			launch(r, 9, 3)
		}, "graphs=3 partial=0 recorded=0 host=0"},
		{"unnamed kernels of a graph", func(r *recording) {
			r.graph(9, false, "", 4)
			launch(r, 9, 1)
		}, "graphs=1 partial=0 recorded=0 host=0 [unknown]=4/4"},
		{"recorded launches did not run", func(r *recording) {
			r.add(schema.OpRecord, "cuLaunchKernel", schema.Func{Name: "a"}, 4)
			kernel(r, "b", 1)
		}, "graphs=0 partial=0 recorded=4 host=0 [b]=1/0"},
		{"host functions and uploads are no launches", func(r *recording) {
			r.graph(9, false, "a", 1)
			r.add(schema.OpHostFunc, "cuLaunchHostFunc", schema.Func{}, 4)
			r.add(schema.OpGraphUpload, "cuGraphUpload", schema.Func{Handle: 9}, 2)
		}, "graphs=0 partial=0 recorded=0 host=4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &recording{Builder: schema.NewBuilder(schema.KindLaunch)}
			tt.fill(r)
			h := New(Config{})
			_ = h.Apply(r.batch(t))
			p := h.Report()[0]
			var w strings.Builder
			fmt.Fprintf(&w, "graphs=%d partial=%d recorded=%d host=%d", p.GraphLaunches, p.GraphLaunchesPartial,
				p.Recorded, p.HostFuncs)
			var kernels, fromGraphs uint64
			for _, k := range p.Funcs {
				fmt.Fprintf(&w, " [%s]=%d/%d", k.Name, k.Launches, k.FromGraphs)
				kernels += k.Launches
				fromGraphs += k.FromGraphs
			}
			if w.String() != tt.want {
				t.Errorf("got  %s\nwant %s", w.String(), tt.want)
			}
			for _, n := range h.workloads.Page() {
				want := launches{kernels: kernels, fromGraphs: fromGraphs, graphs: p.GraphLaunches,
					partial: p.GraphLaunchesPartial}
				if n != want {
					t.Errorf("workload %+v, want %+v", n, want)
				}
			}
			for _, c := range p.Calls {
				if c.OK+c.Recorded == 0 || (c.Op == schema.OpRecord && c.OK > 0) {
					t.Errorf("call %+v", c)
				}
			}
		})
	}
}

func (r *recording) batch(t testing.TB) *schema.Batch {
	t.Helper()
	var b schema.Batch
	if err := schema.NewDecoder().Decode(bytes.Clone(r.Encode(&schema.Header{Host: "h", BootID: "boot"})),
		&b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// A name counts as read from memory until the program names the kernel through the driver.
func TestKernelNameIsReadUntilKnown(t *testing.T) {
	t.Parallel()
	read := func(h *Histogram) bool { return h.Report()[0].Funcs[0].Read }
	h := New(Config{})
	for i, tt := range []struct {
		f    schema.Func
		want bool
	}{
		{schema.Func{Name: "a", Handle: 1, Read: true}, true},
		{schema.Func{Name: "a", Handle: 2}, false},
		{schema.Func{Name: "a", Handle: 1, Read: true}, false},
	} {
		r := &recording{Builder: schema.NewBuilder(schema.KindLaunch)}
		r.add(schema.OpLaunch, "cuLaunchKernel", tt.f, 1)
		_ = h.Apply(r.batch(t))
		if got := read(h); got != tt.want {
			t.Errorf("launch %d: read %v, want %v", i, got, tt.want)
		}
	}
}

// All launches of one graph in a batch count as one sum, whichever symbols made them: the sum decides whether a
// kernel gets a series.
func TestGraphLaunchesAreSummedPerBatch(t *testing.T) {
	t.Parallel()
	r := &recording{Builder: schema.NewBuilder(schema.KindLaunch)}
	r.graph(9, false, "a", 1, "b", 1)
	r.add(schema.OpGraphLaunch, "cuGraphLaunch", schema.Func{Handle: 9}, 1)
	r.add(schema.OpGraphLaunch, "cuGraphLaunch_ptsz", schema.Func{Handle: 9}, 1)
	h := New(Config{})
	_ = h.Apply(r.batch(t))
	for _, kernel := range []string{"a", "b"} {
		if n := h.byName.counts.Page()[kernelLabels{"serve", kernel}]; n != 2 {
			t.Errorf("kernel %s has no series with both launches", kernel)
		}
	}
}

// Many processes that launch one large graph cost bounded work. Launches above the limit are partial, and none is
// lost.
func TestGraphNodesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	const processes, nodes = 300, 1000
	r := &recording{Builder: schema.NewBuilder(schema.KindLaunch)}
	g := schema.Graph{Func: r.Func(schema.Func{Handle: 9})}
	for i := range nodes {
		g.Nodes = append(g.Nodes, schema.Node{Func: r.Func(schema.Func{Name: fmt.Sprint("k", i)}), Count: 1})
	}
	r.Graph(g)
	for pid := range uint32(processes) {
		r.AddLaunch(&schema.Launch{
			Thread: r.Thread(schema.Thread{Process: r.Process(schema.Process{PID: pid, Comm: "serve"})}),
			Shape: r.Shape(schema.LaunchShape{Call: r.Call(schema.CallRef{Symbol: "cuGraphLaunch",
				Op: schema.OpGraphLaunch}), Func: g.Func}),
			CUDAStream: r.CUDAStream(0),
		})
	}
	h := New(Config{})
	_ = h.Apply(r.batch(t))
	var sum launches
	for _, w := range h.workloads.Page() {
		sum.Add(&w)
	}
	const whole = maxNodes / nodes
	if want := (launches{kernels: whole * nodes, fromGraphs: whole * nodes, graphs: processes,
		partial: processes - whole}); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
	if len(h.runs)+len(h.order) > 0 {
		t.Error("the next batch begins with graphs of this one")
	}
}
