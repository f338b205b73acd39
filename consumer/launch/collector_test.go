package launch

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/process"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	for range 2 {
		_ = h.Apply(batch(t, "gpu01.example", 0,
			event{pid: 1, comm: "train", gpu: 1, kernel: axpyFloat, times: 3},
			event{pid: 2, comm: "train", gpu: 1, kernel: axpyDouble, times: 4},
			event{pid: 2, comm: "train", gpu: 2, kernel: fill},
			event{pid: 3, comm: "v\xffllm", symbol: "cuGraphLaunch", times: 5},
			event{pid: 3, comm: "v\xffllm", kernel: ""}))
	}
	want := `
# HELP gputap_cuda_graph_kernel_launches_total CUDA kernels launched inside executable graphs, a part of all launched kernels.
# TYPE gputap_cuda_graph_kernel_launches_total counter
gputap_cuda_graph_kernel_launches_total{UUID="",cluster="",comm="v�llm",container="c0",gpu="",hostname="gpu01.example",job="",pod="",unit="",user=""} 0
# HELP gputap_cuda_graph_launches_partial_total Executable graphs launched whose CUDA kernels are not all known.
# TYPE gputap_cuda_graph_launches_partial_total counter
gputap_cuda_graph_launches_partial_total{UUID="",cluster="",comm="v�llm",container="c0",gpu="",hostname="gpu01.example",job="",pod="",unit="",user=""} 10
# HELP gputap_cuda_graph_launches_total Executable graphs launched.
# TYPE gputap_cuda_graph_launches_total counter
gputap_cuda_graph_launches_total{UUID="",cluster="",comm="v�llm",container="c0",gpu="",hostname="gpu01.example",job="",pod="",unit="",user=""} 10
# HELP gputap_cuda_kernel_launches_by_name_total CUDA kernels launched, by name without template arguments. Each comm has series for its most launched kernels; the others count as other.
# TYPE gputap_cuda_kernel_launches_by_name_total counter
gputap_cuda_kernel_launches_by_name_total{comm="train",kernel="axpy"} 14
gputap_cuda_kernel_launches_by_name_total{comm="train",kernel="at::native::vectorized_elementwise_kernel"} 1
gputap_cuda_kernel_launches_by_name_total{comm="train",kernel="other"} 1
gputap_cuda_kernel_launches_by_name_total{comm="v�llm",kernel="unknown"} 2
# HELP gputap_cuda_kernel_launches_total CUDA kernels launched, including those inside graphs.
# TYPE gputap_cuda_kernel_launches_total counter
gputap_cuda_kernel_launches_total{UUID="",cluster="",comm="v�llm",container="c0",gpu="",hostname="gpu01.example",job="",pod="",unit="",user=""} 2
gputap_cuda_kernel_launches_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",pod="",unit="",user=""} 14
gputap_cuda_kernel_launches_total{UUID="GPU-1",cluster="",comm="train",container="c0",gpu="1",hostname="gpu01.example",job="",pod="",unit="",user=""} 2
`
	if err := testutil.CollectAndCompare(h, strings.NewReader(want), "gputap_cuda_graph_kernel_launches_total",
		"gputap_cuda_graph_launches_partial_total", "gputap_cuda_graph_launches_total",
		"gputap_cuda_kernel_launches_by_name_total", "gputap_cuda_kernel_launches_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(h); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// Series cost 1, 2, 4, … launches. No kernel loses its series, and counted launches never move.
func TestKernelEarnsSeries(t *testing.T) {
	t.Parallel()
	n := newByName()
	c := n.comm("train")
	for i := range 30 { // 30 kernels of the start-up, 4 launches each: series 0, 1 and 2 cost 1, 2 and 4
		n.add(c, fmt.Sprintf("init%02d", i), 4)
	}
	counts := func(kernel string) process.Count { return n.counts.Page()[kernelLabels{"train", kernel}] }
	if counts("init00") != 4 || counts("init02") != 4 || counts("init03") != 0 || counts(other) != 27*4 {
		t.Errorf("after start-up: %d, %d, %d, other %d; want 4, 4, 0, 108", counts("init00"), counts("init02"),
			counts("init03"), counts(other))
	}
	for range 7 { // series 3 costs 8: with 1 to 7 launches the kernel still counts as other
		n.add(c, "gemm", 1)
	}
	if counts("gemm") != 0 || counts(other) != 115 {
		t.Errorf("7 launches: gemm %d, other %d, want 0, 115", counts("gemm"), counts(other))
	}
	n.add(c, "gemm", 1)
	n.add(c, "gemm", 5)
	if counts("gemm") != 6 || counts(other) != 115 {
		t.Errorf("8 launches and on: gemm %d, other %d, want 6, 115", counts("gemm"), counts(other))
	}
	for i := range 40 {
		n.add(c, fmt.Sprintf("heavy%02d", i), 1<<20)
	}
	if len(c.promoted) != topKernels || counts("heavy15") != 1<<20 || counts("heavy16") != 0 {
		t.Errorf("%d named kernels, heavy15 %d, heavy16 %d", len(c.promoted), counts("heavy15"), counts("heavy16"))
	}
	if counts(other) != 115+24*(1<<20) {
		t.Errorf("other %d, want 115 + 24 Mi", counts(other))
	}
	if n.waiting != 0 || c.waiting != nil {
		t.Errorf("%d kernels wait although all series are taken", n.waiting)
	}
}

func TestSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	for i := range 2500 {
		_ = h.Apply(batch(t, fmt.Sprintf("host%d", i), 0, event{comm: fmt.Sprintf("comm%d", i), kernel: "k"}))
	}
	if n := testutil.CollectAndCount(h, "gputap_cuda_kernel_launches_total"); n != process.MaxSeries {
		t.Errorf("%d series, want %d", n, process.MaxSeries)
	}
	if got := h.workloads.Page()[process.Workload{Comm: other}].kernels; got != 501 {
		t.Errorf("%d launches under other, want 501", got)
	}
	if n := testutil.CollectAndCount(h, "gputap_cuda_kernel_launches_by_name_total"); n != process.MaxSeries {
		t.Errorf("%d series by name, want %d", n, process.MaxSeries)
	}
	if got := h.byName.counts.Page()[kernelLabels{other, other}]; got != 501 {
		t.Errorf("%d launches by name under other, want 501", got)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 60) // 120 bytes of C name
	tests := []struct{ name, mangled, full, label string }{
		{"C++ template", axpyFloat, "void axpy<float>(float, float*, float*, int)", "axpy"},
		{"Triton", "triton_poi_fused_add_0", "triton_poi_fused_add_0", "triton_poi_fused_add_0"},
		{"unseen", "", "unknown", "unknown"},
		{"broken mangling", "_Z9", "_Z9", "_Z9"},
		{"long", long, long, long[:96]},
		{"cut between runes", "x" + long, "x" + long, "x" + long[:94]},
		{"no UTF-8", "k\xff", "k�", "k�"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := (names{}).lookup(tt.mangled); n.full != tt.full || n.label != tt.label {
				t.Errorf("%q, %q; want %q, %q", n.full, n.label, tt.full, tt.label)
			}
		})
	}
	full := names{}
	for i := range maxNames + 1 {
		full.lookup(fmt.Sprint(i))
	}
	if len(full) != 1 {
		t.Errorf("%d names after the cache was full, want 1", len(full))
	}
}

// For the race detector.
func TestReadsDuringApply(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	b := batch(t, "h", 0, event{pid: 1, kernel: "k", times: 3}, event{pid: 2, symbol: "cuGraphLaunch"})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			_ = h.Apply(b)
		}
	})
	for range 50 {
		for _, p := range h.Report() {
			if len(p.Funcs) > 0 && p.Funcs[0].Launches != p.Funcs[0].Shapes[0].Launches {
				t.Errorf("a report shows half of a batch: %+v", p.Funcs)
			}
		}
		testutil.CollectAndCount(h)
	}
	wg.Wait()
	if got := text(h); got != "h/1 cuLaunchKernel:600 [k]=600 graphs=0\nh/2 cuGraphLaunch:200 graphs=200\n" {
		t.Errorf("report\n%s", got)
	}
}

// A batch whose GPU column is constant counts under that GPU.
func TestConstantGPUColumn(t *testing.T) {
	t.Parallel()
	for gpu, want := range []process.Workload{{}, {GPU: "0", UUID: "GPU-0"},
		{GPU: "1", UUID: "GPU-1"}} {
		want.Host, want.Container, want.Comm = "h", "c0", "train"
		h := New(Config{})
		_ = h.Apply(batch(t, "h", 0, event{pid: 1, gpu: uint32(gpu), kernel: "a", times: 2},
			event{pid: 1, gpu: uint32(gpu), kernel: "b"}))
		if page := h.workloads.Page(); len(page) != 1 || page[want].kernels != 3 {
			t.Errorf("GPU %d: %v, want 3 kernels under %+v", gpu, page, want)
		}
	}
}
