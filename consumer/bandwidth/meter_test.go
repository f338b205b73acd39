package bandwidth

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// event is one copy of a test.
type event struct {
	pid    uint32
	tid    uint32
	comm   string
	gpu    uint32 // 0: unknown; otherwise 1 + ordinal
	symbol string
	bytes  uint64
	ns     uint64
	result uint32
	record bool // it was recorded into a graph
}

const (
	htod      = "cuMemcpyHtoD_v2"
	dtoh      = "cuMemcpyDtoH_v2"
	htodAsync = "cuMemcpyHtoDAsync_v2"
	dtodAsync = "cuMemcpyDtoDAsync_v2"
)

// batch builds, encodes and decodes copies, so that they passed through the wire form.
func batch(t testing.TB, host string, start schema.KTime, events ...event) *schema.Batch {
	t.Helper()
	b := schema.NewBuilder(schema.KindCopy)
	for _, e := range events {
		comm := e.comm
		if comm == "" {
			comm = "train"
		}
		ref := call(e.symbol).Ref()
		if e.record {
			ref.Op = schema.OpRecord
		}
		c := schema.Copy{
			Time: start, Duration: e.ns, Result: e.result, Bytes: e.bytes, Call: b.Call(ref),
			Thread: b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: e.pid, Comm: comm,
				Container: "c0"}), TID: e.tid}),
			CUDAStream: b.CUDAStream(0),
		}
		if e.gpu > 0 {
			c.GPU = b.GPU(schema.GPU{UUID: fmt.Sprintf("GPU-%d", e.gpu-1), Ordinal: e.gpu - 1})
		}
		b.AddCopy(&c)
	}
	var decoded schema.Batch
	if err := schema.NewDecoder().Decode(bytes.Clone(b.Encode(&schema.Header{Host: host, BootID: "boot"})),
		&decoded); err != nil {
		t.Fatal(err)
	}
	return &decoded
}

func call(symbol string) *schema.Call {
	for i := range schema.Calls {
		if schema.Calls[i].Symbol == symbol {
			return &schema.Calls[i]
		}
	}
	return &schema.Call{Symbol: symbol, Op: schema.OpCopy} // a symbol of a later release with an unknown direction
}

// text is a report with one line per process.
func text(m *Meter) string {
	var w strings.Builder
	for _, p := range m.Report() {
		fmt.Fprintf(&w, "%s/%d", p.ID.Host, p.ID.PID)
		for _, c := range p.Calls {
			fmt.Fprintf(&w, " %s:%d", c.Symbol, c.OK)
			for _, code := range slices.Sorted(maps.Keys(c.Errors)) {
				fmt.Fprintf(&w, "!%d:%d", code, c.Errors[code])
			}
		}
		for _, d := range p.Copies {
			fmt.Fprintf(&w, " [%s calls=%d bytes=%d busy=%d async=%d/%d]", d.Word(), d.Calls, d.Bytes, d.BusyNS,
				d.AsyncCalls, d.AsyncBytes)
		}
		if p.Recorded > 0 {
			fmt.Fprintf(&w, " recorded=%d", p.Recorded)
		}
		w.WriteByte('\n')
	}
	return w.String()
}

func TestReport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		batches [][]event
		want    string
	}{
		{"nothing", nil, ""},
		{"one copy", [][]event{{{pid: 1, symbol: htod, bytes: 4096, ns: 700}}},
			"h/1 cuMemcpyHtoD_v2:1 [HtoD calls=1 bytes=4096 busy=700 async=0/0]\n"},
		{"async is part of the whole and never busy",
			[][]event{{{pid: 1, symbol: htod, bytes: 10, ns: 7}, {pid: 1, symbol: htodAsync, bytes: 30, ns: 500}}},
			"h/1 cuMemcpyHtoD_v2:1 cuMemcpyHtoDAsync_v2:1 [HtoD calls=2 bytes=40 busy=7 async=1/30]\n"},
		{"two directions", [][]event{{{pid: 1, symbol: dtodAsync, bytes: 1},
			{pid: 1, symbol: dtoh, bytes: 2, ns: 3}}},
			"h/1 cuMemcpyDtoDAsync_v2:1 cuMemcpyDtoH_v2:1 [DtoH calls=1 bytes=2 busy=3 async=0/0] [DtoD calls=1 " +
				"bytes=1 busy=0 async=1/1]\n"},
		{"failed copies count as calls",
			[][]event{{{pid: 1, symbol: htod, bytes: 5, ns: 5}, {pid: 1, symbol: htod, bytes: 99, ns: 99, result: 1},
				{pid: 1, symbol: htod, bytes: 99, result: 700}, {pid: 1, symbol: htod, result: 700}}},
			"h/1 cuMemcpyHtoD_v2:1!1:1!700:2 [HtoD calls=1 bytes=5 busy=5 async=0/0]\n"},
		{"only failed copies", [][]event{{{pid: 1, symbol: htod, bytes: 5, result: 2}}}, "h/1 cuMemcpyHtoD_v2:0!2:1\n"},
		{"threads, GPUs and batches add up",
			[][]event{{{pid: 1, tid: 1, symbol: htod, bytes: 1, gpu: 1, ns: 10},
				{pid: 1, tid: 2, symbol: htod, bytes: 2, gpu: 2, ns: 20}},
				{{pid: 1, tid: 3, symbol: htod, bytes: 4, ns: 40}}},
			"h/1 cuMemcpyHtoD_v2:3 [HtoD calls=3 bytes=7 busy=70 async=0/0]\n"},
		{"two processes", [][]event{{{pid: 1, symbol: htod, bytes: 1, ns: 1},
			{pid: 2, symbol: htod, bytes: 2, ns: 2}, {pid: 1, symbol: htod, bytes: 4, ns: 4}}},
			"h/1 cuMemcpyHtoD_v2:2 [HtoD calls=2 bytes=5 busy=5 async=0/0]\n" +
				"h/2 cuMemcpyHtoD_v2:1 [HtoD calls=1 bytes=2 busy=2 async=0/0]\n"},
		{"sets are a separate row", [][]event{{{pid: 1, symbol: "cuMemsetD8_v2", bytes: 8, ns: 3},
			{pid: 1, symbol: "cuMemsetD32Async", bytes: 4, ns: 9}, {pid: 1, symbol: htod, bytes: 1, ns: 1}}},
			"h/1 cuMemsetD8_v2:1 cuMemsetD32Async:1 cuMemcpyHtoD_v2:1 [HtoD calls=1 bytes=1 busy=1 async=0/0] [set " +
				"calls=2 bytes=12 busy=3 async=1/4]\n"},
		{"between GPUs, and where the driver finds the direction",
			[][]event{{{pid: 1, symbol: "cuMemcpyPeer", bytes: 8, ns: 3},
				{pid: 1, symbol: "cuMemcpy2DAsync_v2", bytes: 4}}},
			"h/1 cuMemcpyPeer:1 cuMemcpy2DAsync_v2:1 [PtoP calls=1 bytes=8 busy=3 async=0/0] [default calls=1 " +
				"bytes=4 busy=0 async=1/4]\n"},
		{"recorded copies did not run", [][]event{{{pid: 1, symbol: htodAsync, bytes: 8, record: true},
			{pid: 1, symbol: htodAsync, bytes: 4}}},
			"h/1 cuMemcpyHtoDAsync_v2:1 [HtoD calls=1 bytes=4 busy=0 async=1/4] recorded=1\n"},
		{"unknown direction", [][]event{{{pid: 1, symbol: "cuMemcpySideways", bytes: 8, ns: 1}}},
			"h/1 cuMemcpySideways:1 [ calls=1 bytes=8 busy=1 async=0/0]\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New(Config{})
			for _, events := range tt.batches {
				if err := m.Apply(batch(t, "h", 0, events...)); err != nil {
					t.Fatal(err)
				}
			}
			if got := text(m); got != tt.want {
				t.Errorf("report\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// A batch whose table of sums would be too large yields the same sums.
func TestLargeTableFallsBack(t *testing.T) {
	t.Parallel()
	var events []event
	for i := range 600 {
		events = append(events, event{pid: uint32(i), gpu: 1 + uint32(i), symbol: htod, bytes: uint64(i), ns: 2,
			result: uint32(i % 2)})
	}
	m := New(Config{})
	if err := m.Apply(batch(t, "h", 0, events...)); err != nil {
		t.Fatal(err)
	}
	var bytes, failed uint64
	for _, p := range m.Report() {
		failed += p.Calls[0].Failed
		for _, d := range p.Copies {
			bytes += d.Bytes
		}
	}
	if bytes != 89_700 || failed != 300 { // 0 + 2 + … + 598 = 300 · 299
		t.Errorf("%d bytes, %d failed, want 89700, 300", bytes, failed)
	}
}

func TestThroughput(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		use  DirectionUse
		want float64
	}{
		{"nothing", DirectionUse{}, 0},
		{"only submitted", DirectionUse{Bytes: 9, AsyncBytes: 9}, 0},
		{"1 GB in half a second, and submitted", DirectionUse{Bytes: 3e9, AsyncBytes: 2e9, BusyNS: 5e8}, 2e9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.use.Throughput(); got != tt.want {
				t.Errorf("%v B/s, want %v", got, tt.want)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	m := New(Config{Keep: time.Minute})
	_ = m.Apply(batch(t, "gpu01.example", 0,
		event{pid: 1, gpu: 1, symbol: htod, bytes: 100, ns: 1_500_000_000},
		event{pid: 2, gpu: 1, symbol: htod, bytes: 200, ns: 500_000_000},
		event{pid: 1, gpu: 1, symbol: htodAsync, bytes: 1000, ns: 9e9},
		event{pid: 1, gpu: 1, symbol: htod, bytes: 7, result: 1},
		event{pid: 3, comm: "v\xffllm", symbol: dtoh, bytes: 5, ns: 250_000_000},
		event{pid: 1, gpu: 1, symbol: "cuMemsetD8_v2", bytes: 64}))
	_ = m.Apply(batch(t, "gpu01.example", schema.KTime(time.Hour), event{pid: 4, gpu: 1, symbol: htod, bytes: 1}))
	if got := len(m.Report()); got != 1 {
		t.Errorf("%d processes, want 1: the others were silent for an hour", got)
	}
	want := `
# HELP gputap_cuda_memcpy_busy_seconds_total Host time in successful synchronous copy calls. Bytes of mode sync divided by this time are the throughput.
# TYPE gputap_cuda_memcpy_busy_seconds_total counter
gputap_cuda_memcpy_busy_seconds_total{UUID="",cluster="",comm="v�llm",container="c0",gpu="",hostname="gpu01.example",job="",kind="d2h",pod="",unit="",user=""} 0.25
gputap_cuda_memcpy_busy_seconds_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",kind="h2d",pod="",unit="",user=""} 2
# HELP gputap_cuda_memcpy_bytes_total Bytes of successful copies. Mode sync: copied; mode async: submitted.
# TYPE gputap_cuda_memcpy_bytes_total counter
gputap_cuda_memcpy_bytes_total{UUID="",cluster="",comm="v�llm",container="c0",gpu="",hostname="gpu01.example",job="",kind="d2h",mode="sync",pod="",unit="",user=""} 5
gputap_cuda_memcpy_bytes_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",kind="h2d",mode="async",pod="",unit="",user=""} 1000
gputap_cuda_memcpy_bytes_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",kind="h2d",mode="sync",pod="",unit="",user=""} 301
# HELP gputap_cuda_memcpy_calls_total Successful copies. Mode sync: done; mode async: submitted.
# TYPE gputap_cuda_memcpy_calls_total counter
gputap_cuda_memcpy_calls_total{UUID="",cluster="",comm="v�llm",container="c0",gpu="",hostname="gpu01.example",job="",kind="d2h",mode="sync",pod="",unit="",user=""} 1
gputap_cuda_memcpy_calls_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",kind="h2d",mode="async",pod="",unit="",user=""} 1
gputap_cuda_memcpy_calls_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",kind="h2d",mode="sync",pod="",unit="",user=""} 3
# HELP gputap_cuda_memset_bytes_total Bytes of successful memory sets. Mode sync: set; mode async: submitted.
# TYPE gputap_cuda_memset_bytes_total counter
gputap_cuda_memset_bytes_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",mode="sync",pod="",unit="",user=""} 64
# HELP gputap_cuda_memset_calls_total Successful memory sets. Mode sync: done; mode async: submitted.
# TYPE gputap_cuda_memset_calls_total counter
gputap_cuda_memset_calls_total{UUID="GPU-0",cluster="",comm="train",container="c0",gpu="0",hostname="gpu01.example",job="",mode="sync",pod="",unit="",user=""} 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "gputap_cuda_memcpy_busy_seconds_total",
		"gputap_cuda_memcpy_bytes_total", "gputap_cuda_memcpy_calls_total", "gputap_cuda_memset_bytes_total",
		"gputap_cuda_memset_calls_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	m := New(Config{})
	for i := range 2500 {
		_ = m.Apply(batch(t, fmt.Sprintf("host%d", i), 0, event{symbol: htod, bytes: 2, ns: 1}))
	}
	_ = m.Apply(batch(t, "late", 0, event{symbol: dtodAsync, bytes: 3}))
	other := process.Workload{}.Other()
	// 2000 − 16 + the 2 used series of comm="other"
	if n := testutil.CollectAndCount(m, "gputap_cuda_memcpy_bytes_total"); n != 1986 {
		t.Errorf("%d series, want 1986", n)
	}
	if got := m.moves.Page()[series{other, schema.HtoD, false}].bytes; got != 2*516 {
		t.Errorf("%d bytes under other, want 1032", got)
	}
	if got := m.moves.Page()[series{other, schema.DtoD, true}].bytes; got != 3 {
		t.Errorf("%d submitted bytes under other, want 3", got)
	}
}

func TestHeartbeatIsIgnored(t *testing.T) {
	t.Parallel()
	m := New(Config{})
	var b schema.Batch
	if err := schema.NewDecoder().Decode(schema.NewBuilder(schema.KindHost).Encode(&schema.Header{Host: "h"}),
		&b); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(&b); err != nil || len(m.Report()) != 0 {
		t.Errorf("heartbeat: %v, %v", err, m.Report())
	}
}

// For the race detector.
func TestReadsDuringApply(t *testing.T) {
	t.Parallel()
	m := New(Config{})
	b := batch(t, "h", 0, event{pid: 1, symbol: htod, bytes: 2, ns: 3}, event{pid: 1, symbol: htod, result: 1})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			_ = m.Apply(b)
		}
	})
	for range 50 {
		for _, p := range m.Report() {
			if p.Calls[0].OK != p.Calls[0].Errors[1] {
				t.Errorf("a report shows half of a batch: %+v", p.Calls)
			}
		}
		testutil.CollectAndCount(m)
	}
	wg.Wait()
	if got, want := text(m),
		"h/1 cuMemcpyHtoD_v2:200!1:200 [HtoD calls=200 bytes=400 busy=600 async=0/0]\n"; got != want {
		t.Errorf("report\n%s", got)
	}
}
