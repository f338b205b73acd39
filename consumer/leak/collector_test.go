package leak

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

func TestMetricsPage(t *testing.T) {
	t.Parallel()
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

	consumertest.GoldenFile(t, "testdata/metrics.txt", got)
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

// Every family keeps its limit, and the series together still count every byte.
func TestSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
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
		"gputap_leak_state_incomplete", "gputap_leak_suspected_bytes",
	} {
		if n := series(got, family); n > process.MaxSeries || n < process.MaxSeries-2*numOther {
			t.Errorf("%s: %d series, want slightly fewer than %d", family, n, process.MaxSeries)
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
	largest := process.Workload{HostID: snapshot.HostID{Cluster: "test", Host: "gpu-01"}, Comm: "job-2499"}
	if _, shown := s.gauges[processID{workloadID{largest, schema.ClassDevice}, "2599"}]; !shown {
		t.Error("the largest process has no series")
	}
}

// A workload whose processes have all ended is evicted for a new one; a running workload is not.
func TestEndedWorkloadIsEvictedForNewOne(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	stays := h.Process(1, 1, "stays").Alloc(1, 0x1000, 5, 10, 1)
	for i := range uint32(2 * process.MaxSeries) {
		h.Process(100+i, 1, fmt.Sprintf("job-%d", i)).Alloc(100+i, 0x1000, 1, 20, 1).Exit(30)
	}
	stays.Free(1, 0x1000, 40, 1)
	apply(t, tracker, h.Batch())
	if n := tracker.workloadBytes(process.Other); n != 0 {
		t.Errorf("%d bytes counted as other, want none", n)
	}
	if n := tracker.workloadBytes("stays"); n != 5 {
		t.Errorf("the running workload counts %d bytes, want 5", n)
	}
	if n := len(tracker.workloads.index); n > process.MaxSeries {
		t.Errorf("%d workloads, at most %d", n, process.MaxSeries)
	}
}

// joined returns a fold that restored the hosts of several folds.
func joined(t *testing.T, folds ...*Tracker) *Tracker {
	var hosts []snapshot.Section
	for _, fold := range folds {
		hosts = append(hosts, consumertest.Sections(t, fold)[1:]...)
	}
	return consumertest.Restore(t, New(Config{}), hosts)
}

// Joined hosts have more workloads and failures than series. The limit holds, and running workloads still count, if
// need be as other.
func TestJoinedSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	const hosts, running, idle = 3, 900, 1000
	var folds []*Tracker
	for n := range hosts {
		h := consumertest.Memory(t, fmt.Sprint("gpu-", n))
		for i := range uint32(running + idle) {
			p := h.Process(100+i, 1, fmt.Sprint("job-", i)).Alloc(1, 0x1000, 7, 10, 1).Fail("cuMemAlloc_v2", 1, 2,
				1<<40, 11)
			if i >= running {
				p.Exit(20)
			}
		}
		folds = append(folds, New(Config{}))
		apply(t, folds[n], h.Batch())
	}
	tracker := joined(t, folds...)
	balanced(t, tracker)
	page := consumertest.Page(t, tracker)
	if n := series(page, "gputap_cuda_memory_allocs_total"); n > process.MaxSeries {
		t.Errorf("%d series of workloads, at most %d", n, process.MaxSeries)
	}
	if n := series(page, "gputap_cuda_api_errors_total"); n > process.MaxSeries {
		t.Errorf("%d series of failures, at most %d", n, process.MaxSeries)
	}
	var live, failed uint64
	for _, w := range tracker.workloads.all() {
		live += w.allocated - w.freed - w.unfreed
		for _, n := range w.failed {
			failed += n
		}
	}
	if failed += tracker.workloads.unplaced; live != hosts*running*7 || failed < hosts*running {
		t.Errorf("%d bytes live and %d failures, want %d and at least %d", live, failed, hosts*running*7, hosts*running)
	}
	consumertest.Restore(t, New(Config{}), consumertest.Sections(t, tracker))
}

// Joined hosts have more host series than the limit. The hosts above the limit count as other, including their saved
// counters.
func TestJoinedHostsKeepTheirLimit(t *testing.T) {
	t.Parallel()
	const folds, hosts = 2, 1200
	var all []*Tracker
	for n := range folds {
		fold := New(Config{})
		for i := range hosts {
			h := consumertest.Memory(t, fmt.Sprintf("gpu-%d-%d", n, i))
			h.Process(1, 1, "x").Free(1, 0x1000, 10, 1)
			apply(t, fold, h.Batch())
		}
		all = append(all, fold)
	}
	tracker := joined(t, all...)
	sections := consumertest.Sections(t, tracker)
	for _, fold := range []*Tracker{tracker, consumertest.Restore(t, New(Config{}), sections)} {
		var frees uint64
		for _, q := range fold.scrape().totals {
			frees += q[unmatchedFree]
		}
		if n := series(consumertest.Page(t, fold), "gputap_leak_unmatched_frees_total"); n != process.MaxSeries ||
			frees != folds*hosts {
			t.Errorf("%d series, want %d; %d frees, want %d", n, process.MaxSeries, frees, folds*hosts)
		}
		if !reflect.DeepEqual(consumertest.Sections(t, fold), sections) {
			t.Error("the restored fold has another state")
		}
	}
	for _, s := range sections[1:] {
		tracker.Forget(s.Cluster, s.Host)
	}
	if left := tracker.scrape().totals; len(left) != 1 {
		t.Errorf("%d series of hosts when all are gone, want only that of the others", len(left))
	}
}

// After a join, the workload that has been without a process for longest is still evicted first.
func TestOldestIdleWorkloadIsEvictedAfterJoin(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	for i := range uint32(process.MaxSeries - numOther - 1) {
		h.Process(100+i, 1, fmt.Sprint("old-", i)).Alloc(1, 0x1000, 1, 10, 1).Exit(20)
	}
	fold := New(Config{})
	apply(t, fold, h.Batch())
	tracker := joined(t, fold)
	h.Process(1, 30, "ended").Alloc(1, 0x1000, 5, 40, 1).Exit(50)
	h.Process(2, 30, "new").Alloc(1, 0x1000, 3, 60, 1)
	apply(t, tracker, h.Batch())
	if ended, began, old := tracker.workloadBytes("ended"), tracker.workloadBytes("new"),
		tracker.workloadBytes("old-0"); ended != 5 || began != 3 || old != 0 {
		t.Errorf("bytes of the workload that just ended, the new one and the oldest idle one: %d, %d, %d; want 5, 3, 0",
			ended, began, old)
	}
}
