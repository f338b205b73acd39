package leak

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

var update = flag.Bool("update", false, "write golden files")

func TestMetricsPage(t *testing.T) {
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(42, 1, "python")
	p.Container = "c0ffee"
	p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: 0}
	p.Alloc(42, 0x1000, 1000, 10, 1).Alloc(42, 0x2000, 500, 11, 1).Free(42, 0x1000, 20, 1)
	p.Call("cuMemHostAlloc", 42, schema.Memory{Time: 21, Ptr: 0x3000, Bytes: 64})
	p.Fail("cuMemAlloc_v2", 42, 2, 1<<50, 22).Fail("cuMemFree_v2", 42, 12345, 0, 23)
	p.Free(42, 0x9000, 24, 1).Alloc(42, 0x2000, 600, 30, 5).Free(42, 0x2000, 29, 8).Alloc(42, 0x2000, 700, 50, 1)
	p.Call("cuMemHostRegister_v2", 42, schema.Memory{Time: 51, Ptr: 0x5000, Bytes: 32}).Open(42, 0x6000, 1<<40, 52, 1)
	p.PoolInfo(0x99, poolReserved, 4096, 53).MemInfo(10_000, 80_000, 54).DestroyContext(0xc, 55, 1)
	p.Fail("cuCtxCreate_v4", 42, 999, 0, 56).Fail("cuIpcOpenMemHandle", 42, 1, 0, 57)
	late := h.Process(43, 1, "bad\xffname")
	late.Late = true
	late.Alloc(43, 0x1000, 7, 60, 1)
	h.Process(44, 1, "gone").Alloc(44, 0x1000, 9, 70, 1).Exit(80)
	tracker := New(Config{})
	apply(t, tracker, h.Batch())
	got := consumertest.Page(t, tracker)

	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	problems, err := promlint.New(bytes.NewReader(got)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func series(page []byte, family string) (n int) {
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, family+"{") {
			n++
		}
	}
	return n
}

// Every family stays within its bound and loses no byte; counters never go backwards.
func TestSeriesAreBounded(t *testing.T) {
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	const processes = 2500
	for i := range uint32(processes) {
		p := h.Process(100+i, 1, fmt.Sprintf("job-%d", i)).Alloc(100+i, 0x1000, uint64(1+i), 10, 1)
		for code := range uint32(3) {
			p.Fail("cuMemAlloc_v2", 100+i, 1+code, 1, 11)
		}
	}
	apply(t, tracker, h.Batch())
	got := consumertest.Page(t, tracker)
	for _, family := range []string{
		"gputap_cuda_memory_live_bytes", "gputap_cuda_memory_allocated_bytes_total", "gputap_cuda_api_errors_total",
		"gputap_leak_state_incomplete",
	} {
		if n := series(got, family); n > maxSeries || n < maxSeries-2*numOther {
			t.Errorf("%s: %d series, want just below %d", family, n, maxSeries)
		}
	}
	var allocated, live uint64
	s := tracker.scrape()
	failed := s.unplaced
	for _, w := range s.workloads {
		allocated += w.allocated
	}
	for _, g := range s.gauges {
		live += g.live.bytes
	}
	for _, n := range s.failed {
		failed += n
	}
	if want := uint64(processes * (processes + 1) / 2); allocated != want || live != want || failed != 3*processes {
		t.Errorf("allocated %d, live %d, want %d; failed %d, want %d", allocated, live, want, failed, 3*processes)
	}
	if got := s.gauges[processID{labels: labels{hostname: "gpu-01", comm: "job-2499", class: schema.ClassDevice}, pid: "2599"}]; got == nil {
		t.Error("the largest process was folded away")
	}
}

// A workload whose processes all ended makes room for a new one; one that runs does not.
func TestEndedWorkloadsMakeRoom(t *testing.T) {
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	stays := h.Process(1, 1, "stays").Alloc(1, 0x1000, 5, 10, 1)
	for i := range uint32(2 * maxSeries) {
		h.Process(100+i, 1, fmt.Sprintf("job-%d", i)).Alloc(100+i, 0x1000, 1, 20, 1).Exit(30)
	}
	stays.Free(1, 0x1000, 40, 1)
	apply(t, tracker, h.Batch())
	if n := tracker.workloadBytes(other); n != 0 {
		t.Errorf("%d bytes counted as other, want none", n)
	}
	if n := tracker.workloadBytes("stays"); n != 5 {
		t.Errorf("the running workload counts %d bytes, want 5", n)
	}
	if n := len(tracker.workloads.index); n > maxSeries {
		t.Errorf("%d workloads, at most %d", n, maxSeries)
	}
}
