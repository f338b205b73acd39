package launch

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/schema"
)

const (
	axpyFloat  = "_Z4axpyIfEvT_PS0_S1_i"
	axpyDouble = "_Z4axpyIdEvT_PS0_S1_i"
	fill       = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
)

// event is one launch of a test. The zero event is one launch of an unnamed kernel by process 0.
type event struct {
	pid    uint32
	tid    uint32
	comm   string
	gpu    uint32 // 0: unknown; otherwise 1 + ordinal
	symbol string // "": cuLaunchKernel
	kernel string
	grid   uint32
	times  int // 0: once
}

// batch builds, encodes and decodes launches, so that they passed through the wire form.
func batch(t testing.TB, host string, start schema.KTime, events ...event) *schema.Batch {
	t.Helper()
	b := schema.NewBuilder(schema.KindLaunch)
	for _, e := range events {
		call := schema.Call{Symbol: "cuLaunchKernel", Op: schema.OpLaunch}
		if e.symbol != "" {
			call = schema.Call{Symbol: e.symbol, Op: schema.OpGraphLaunch}
		}
		comm := e.comm
		if comm == "" {
			comm = "train"
		}
		l := schema.Launch{
			Time: start,
			Thread: b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: e.pid, Comm: comm,
				Container: "c0"}), TID: e.tid}),
			Shape: b.Shape(schema.LaunchShape{
				Call: b.Call(call.Ref()), Func: b.Func(schema.Func{Name: e.kernel}),
				Grid: [3]uint32{e.grid, 1, 1}, Block: [3]uint32{256, 1, 1},
			}),
			CUDAStream: b.CUDAStream(0),
		}
		if e.gpu > 0 {
			l.GPU = b.GPU(schema.GPU{UUID: fmt.Sprintf("GPU-%d", e.gpu-1), Ordinal: e.gpu - 1})
		}
		for range max(e.times, 1) {
			b.AddLaunch(&l)
		}
	}
	var decoded schema.Batch
	if err := schema.NewDecoder().Decode(bytes.Clone(b.Encode(&schema.Header{Host: host, BootID: "boot"})),
		&decoded); err != nil {
		t.Fatal(err)
	}
	return &decoded
}

// text is a report with one line per process: launches per call, kernels, graphs.
func text(h *Histogram) string {
	var w strings.Builder
	for _, p := range h.Report() {
		fmt.Fprintf(&w, "%s/%d", p.ID.Host, p.ID.PID)
		for _, c := range p.Calls {
			fmt.Fprintf(&w, " %s:%d", c.Symbol, c.OK)
		}
		for _, k := range p.Funcs {
			fmt.Fprintf(&w, " [%s]=%d", k.Name, k.Launches)
		}
		fmt.Fprintf(&w, " graphs=%d\n", p.GraphLaunches)
	}
	return w.String()
}

func TestReport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		cfg     Config
		batches [][]event
		want    string
	}{
		{"nothing", Config{}, nil, ""},
		{"one launch", Config{}, [][]event{{{pid: 1, kernel: axpyFloat}}},
			"h/1 cuLaunchKernel:1 [void axpy<float>(float, float*, float*, int)]=1 graphs=0\n"},
		{"most launched first", Config{}, [][]event{{{pid: 1, kernel: "b", times: 2}, {pid: 1, kernel: "a", times: 2},
			{pid: 1, kernel: "c", times: 3}}},
			"h/1 cuLaunchKernel:7 [c]=3 [a]=2 [b]=2 graphs=0\n"},
		{"shapes and threads of one kernel add up", Config{},
			[][]event{{{pid: 1, kernel: "k", grid: 1}, {pid: 1, kernel: "k", grid: 2},
				{pid: 1, tid: 9, kernel: "k", grid: 1}}},
			"h/1 cuLaunchKernel:3 [k]=3 graphs=0\n"},
		{"batches add up", Config{}, [][]event{{{pid: 1, kernel: "k"}}, {{pid: 1, kernel: "k", times: 4}}},
			"h/1 cuLaunchKernel:5 [k]=5 graphs=0\n"},
		{"a handle obtained unseen", Config{}, [][]event{{{pid: 1, kernel: ""}}},
			"h/1 cuLaunchKernel:1 [unknown]=1 graphs=0\n"},
		{"graphs are counted separately", Config{},
			[][]event{{{pid: 1, symbol: "cuGraphLaunch", times: 3}, {pid: 1, kernel: "k"}}},
			"h/1 cuGraphLaunch:3 cuLaunchKernel:1 [k]=1 graphs=3\n"},
		{"two processes on several GPUs", Config{},
			[][]event{{{pid: 1, kernel: "k", gpu: 1}, {pid: 2, kernel: "k", gpu: 2, times: 2}, {pid: 1, kernel: "k"},
				{pid: 1, kernel: "k", gpu: 2, times: 5}}},
			"h/1 cuLaunchKernel:7 [k]=7 graphs=0\nh/2 cuLaunchKernel:2 [k]=2 graphs=0\n"},
		{"kernels above the limit", Config{MaxKernels: 2},
			[][]event{{{pid: 1, kernel: "a"}, {pid: 1, kernel: "b"}, {pid: 1, kernel: "c", times: 2},
				{pid: 1, kernel: "d"}, {pid: 1, kernel: "a"}}},
			"h/1 cuLaunchKernel:6 [other]=3 [a]=2 [b]=1 graphs=0\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := New(tt.cfg)
			for _, events := range tt.batches {
				if err := h.Apply(batch(t, "h", 0, events...)); err != nil {
					t.Fatal(err)
				}
			}
			if got := text(h); got != tt.want {
				t.Errorf("report\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// A batch whose table of counts would be too large yields the same counts.
func TestLargeTableFallsBack(t *testing.T) {
	t.Parallel()
	var events []event
	for i := range 1100 {
		events = append(events, event{pid: uint32(i), kernel: "k", grid: uint32(i), gpu: uint32(i%2) * 2,
			times: 1 + i%3})
	}
	h := New(Config{})
	if err := h.Apply(batch(t, "h", 0, events...)); err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for i, p := range h.Report() {
		if want := uint64(1 + i%3); p.Funcs[0].Launches != want || p.Calls[0].OK != want {
			t.Fatalf("process %d: %d launches, want %d", i, p.Funcs[0].Launches, want)
		}
		sum += p.Funcs[0].Launches
	}
	if sum != 2199 { // 1100 = 366·(1+2+3) + 1 + 2
		t.Errorf("%d launches, want 2199", sum)
	}
}

func TestShapesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	var events []event
	for i := range 10 {
		events = append(events, event{pid: 1, kernel: "k", grid: uint32(i), times: i + 1})
	}
	h := New(Config{})
	for range 2 {
		if err := h.Apply(batch(t, "h", 0, events...)); err != nil {
			t.Fatal(err)
		}
	}
	k := h.Report()[0].Funcs[0]
	var want []Shape
	for i := range uint32(8) {
		want = append(want, Shape{Grid: [3]uint32{i, 1, 1}, Block: [3]uint32{256, 1, 1}, Launches: 2 * uint64(i+1)})
	}
	if k.Launches != 110 || !reflect.DeepEqual(k.Shapes, want) {
		t.Errorf("%d launches in %v, want 110 in %v", k.Launches, k.Shapes, want)
	}
}

func TestSilentProcessIsForgotten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		keep time.Duration
		want string
	}{
		{"for ever", 0, "h/1 cuLaunchKernel:1 [k]=1 graphs=0\nh/2 cuLaunchKernel:1 [k]=1 graphs=0\n"},
		{"ten minutes", 10 * time.Minute, "h/2 cuLaunchKernel:1 [k]=1 graphs=0\n"},
		{"an hour", time.Hour, "h/1 cuLaunchKernel:1 [k]=1 graphs=0\nh/2 cuLaunchKernel:1 [k]=1 graphs=0\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := New(Config{Keep: tt.keep})
			_ = h.Apply(batch(t, "h", 0, event{pid: 1, kernel: "k"}))
			_ = h.Apply(batch(t, "h", schema.KTime(20*time.Minute), event{pid: 2, kernel: "k"}))
			if got := text(h); got != tt.want {
				t.Errorf("report\n%swant\n%s", got, tt.want)
			}
			if got := testutil.ToFloat64(family{h, kernelLaunches}); got != 2 {
				t.Errorf("workload counter %v, want 2: it outlives processes", got)
			}
		})
	}
}

// family collects one metric family.
type family struct {
	h    *Histogram
	desc *prometheus.Desc
}

func (f family) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

func (f family) Collect(ch chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric, 100)
	f.h.Collect(all)
	close(all)
	for m := range all {
		if m.Desc() == f.desc {
			ch <- m
		}
	}
}

func TestHeartbeatIsIgnored(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	var b schema.Batch
	if err := schema.NewDecoder().Decode(schema.NewBuilder(schema.KindHost).Encode(&schema.Header{Host: "h"}),
		&b); err != nil {
		t.Fatal(err)
	}
	if err := h.Apply(&b); err != nil || len(h.Report()) != 0 {
		t.Errorf("heartbeat: %v, %v", err, h.Report())
	}
}
