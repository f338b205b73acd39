package inspect

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/consumertest"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	t := now.Add(-d)
	return &t
}

var (
	trainer = &report.Process{
		Cluster: "prod", Host: "gpu-17", PID: 4021337, Comm: "python3", User: "ann", UID: 1000, Evidence: "complete",
		Exe: "/usr/bin/python3.12", Unit: "train.service", Start: *ago(3 * time.Hour), LiveBytes: 61<<30 + 300<<20,
		LiveAllocations: 811, PeakBytes: 70 << 30,
		GPUs: map[string]*report.GPU{
			"GPU-a0b1c2d3-0000-4000-8000-000000000001": {LiveBytes: 61<<30 + 300<<20,
				Info: &report.MemoryInfo{Time: *ago(5 * time.Minute), UsedBytes: 63 << 30, TotalBytes: 140 << 30}},
			"unknown": {},
		},
		Threads:  []report.Thread{{TID: 4021337, Comm: "python3", LiveBytes: 61 << 30, LiveAllocations: 800}},
		Classes:  map[string]uint64{"device": 61 << 30, "pool": 300 << 20},
		Calls:    map[string]*report.Call{"cuMemAlloc_v2": {OK: 900, Failed: 1, Errors: map[uint32]uint64{2: 1}}},
		Launches: map[string]uint64{"gemm<float>(float*, int)": 120_000},
		Verdicts: []report.Verdict{
			{GPU: "GPU-b0b1c2d3-0000-4000-8000-000000000001", State: "steady"},
			{GPU: "GPU-a0b1c2d3-0000-4000-8000-000000000001", State: "growing", SlopeBytesPerHour: 3 << 30,
				Why: "live memory grows"},
		},
		Job: "slurm:17", Rank: new(uint32(3)),
		TopKernels: []report.KernelRate{{Kernel: "gemm<float>(float*, int)", Rate: report.Rate{Launches: 120_000,
			PerSecond: 11.1, Share: 1}}},
		Copies: map[string]*report.Copy{"HtoD": {Calls: 20, Bytes: 3 << 30, BusySeconds: 0.25}},
		Waits:  report.Waits{Calls: 12, Seconds: 1.5},
		Largest: []report.Allocation{
			{Address: "0x7f2c00000000", Bytes: 32 << 30, Class: "device",
				GPU: "GPU-a0b1c2d3-0000-4000-8000-000000000001",
				TID: 4021337, Thread: "python3", Since: *ago(2 * time.Hour), Symbol: "cuMemAlloc_v2"},
			{Address: "0x7f2b00000000", Bytes: 300 << 20, Class: "pool", GPU: "unknown", TID: 4021400, Thread: "loader",
				Since: *ago(90 * time.Second), Symbol: "cuMemAllocAsync"},
		},
	}
	leaker = &report.Process{
		Cluster: "prod", Host: "gpu-2", PID: 88, Comm: "serve", UID: 33, Evidence: "gap", Ended: true,
		Start: *ago(50 * time.Hour), PeakBytes: 20 << 20, UnfreedBytes: 512, Container: "0123456789abcdef",
	}
	who = answer.Who{Cluster: "prod", Host: "gpu-17", PID: 4021337, Comm: "python3", User: "ann"}
)

// TestTables is the golden text of every table, narrow and wide. The narrow ones fit into 80 columns, except those that
// end with a long text.
func TestTables(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	golden(t, &out, processes, trainer, leaker)
	golden(t, &out, hosts,
		answer.FleetHost{Host: report.Host{Cluster: "prod", Host: "gpu-17", Heard: ago(4 * time.Second),
			LastEvent: ago(time.Second), Linux: "6.18.44", Producer: "v0.1.0", GPUs: make([]report.HostGPU, 8)},
			Processes: 12, LiveBytes: 400 << 30},
		answer.FleetHost{Host: report.Host{Cluster: "prod", Host: "gpu-2", Heard: ago(3 * time.Hour),
			Producer: "v0.1.0", Lost: map[string]uint64{"spool": 70, "missing_batches": 2}, LateProcesses: 1}})
	golden(t, &out, gpus,
		answer.FleetGPU{Cluster: "prod", Host: "gpu-17", HostGPU: report.HostGPU{UUID: "GPU-a0b1c2d3-0000",
			Name: "NVIDIA H200", Bus: "0000:06:00.0"}, LiveBytes: 61 << 30, Processes: 1,
			Info: trainer.GPUs["GPU-a0b1c2d3-0000-4000-8000-000000000001"].Info, Total: new(uint64(140 << 30))},
		answer.FleetGPU{Cluster: "prod", Host: "gpu-17", HostGPU: report.HostGPU{UUID: "GPU-b0b1c2d3-0000",
			Name: "NVIDIA H200"}})
	golden(t, &out, kernels, answer.FleetKernel{Who: who, Name: strings.Repeat("gemm<float>", 9),
		Kernel: report.Kernel{Launches: 120_000, FromGraphs: 7, NameSource: "told"}})
	golden(t, &out, copies,
		answer.FleetCopy{Who: who, Direction: "HtoD", Copy: report.Copy{Calls: 20, Bytes: 3 << 30, BusySeconds: 0.25}},
		answer.FleetCopy{Who: who, Direction: "set", Copy: report.Copy{Calls: 2, Bytes: 1 << 10, AsyncCalls: 2,
			AsyncBytes: 1 << 10}})
	golden(t, &out, alerts, anomaly.Alert{Cluster: "prod", Host: "gpu-17", PID: 4021337, Comm: "python3", Rule: "oom",
		ID: "a1b2c3d4", State: "firing", Severity: "critical",
		Time: *ago(12 * time.Minute), Message: "cuMemAlloc_v2 of 2 GiB failed"},
		anomaly.Alert{ID: "e5f60718", State: "cleared", Severity: "warning", Rule: "host_silent", Cluster: "prod",
			Host: "gpu-9", Time: *ago(2 * time.Hour), Message: "Nothing was heard of gpu-9"})
	consumertest.GoldenFile(t, "testdata/tables.txt", out.Bytes())
}

// TestSortShowsItsColumn: who sorts by growth wants to see it.
func TestSortShowsItsColumn(t *testing.T) {
	t.Parallel()
	l := &answer.List[process]{Time: now, Items: []process{leaker}}
	for order, want := range map[string]bool{"live": false, "growth": true} {
		var table bytes.Buffer
		processes.table(l, processes.severalClusters(l), false, order).Write(&table)
		if strings.Contains(table.String(), "GROWTH/H") != want {
			t.Errorf("sorted by %s:\n%s", order, &table)
		}
	}
}

func golden[T any](t *testing.T, out *bytes.Buffer, r resource[T], items ...T) {
	l := &answer.List[T]{Time: now, Items: items}
	for _, wide := range []bool{false, true} {
		var table bytes.Buffer
		r.table(l, r.severalClusters(l), wide, r.orders[0].name).Write(&table)
		for line := range strings.Lines(table.String()) {
			if n := utf8.RuneCountInString(line) - 1; n > 80 && !wide && r.name != "kernels" && r.name != "alerts" {
				t.Errorf("%s: a line has %d columns: %s", r.name, n, line)
			}
		}
		fmt.Fprintf(out, "%s\n", table.Bytes())
	}
}

func TestDescription(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	trainer.Describe(&out, now)
	leaker.Describe(&out, now)
	consumertest.GoldenFile(t, "testdata/describe.txt", out.Bytes())
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	fold := func(name string, missing []int, instances int) answer.FoldHealth {
		h := answer.FoldHealth{Fold: name, Instances: instances, Lag: new(uint64), Invalid: new(uint64)}
		h.Shards, h.Answered, h.Missing = 16, 16-len(missing), missing
		return h
	}
	absent := fold("bandwidth", nil, 0)
	absent.NotRunning = []string{"bandwidth"}
	leak := fold("leak", nil, 3)
	leak.Checkpoint, leak.Lag = ago(9*time.Second), new(uint64(17))
	anomalies := fold("anomaly", nil, 1)
	anomalies.Invalid = new(uint64(4))
	s := &answer.Status{
		Time: now, Folds: []answer.FoldHealth{leak, fold("launch", []int{3, 9}, 2), absent, anomalies},
		Hosts: &answer.HostHealth{Known: 1000, Heard: 995, Silent: []answer.SilentHost{
			{Host: "gpu-9", Heard: *ago(2 * time.Hour)}, {Host: "gpu-7", Heard: *ago(4 * time.Minute)},
			{Host: "gpu-1", Heard: *ago(31 * time.Second)}, {Host: "gpu-3"}, {Host: "gpu-4"},
		}},
		Problems: []string{"5 of 1000 hosts are silent", "launch: 2 of 16 shards do not answer"},
		Lost:     map[string]uint64{"spool": 12, "missing_batches": 3},
		Alerts: answer.AlertHealth{Recent: new(2),
			Newest: &anomaly.Alert{Time: *ago(time.Minute), Rule: "oom", Host: "gpu-7"}},
	}
	var out bytes.Buffer
	writeStatus(&out, s)
	fmt.Fprintln(&out)
	s.Hosts, s.Lost, s.Healthy = &answer.HostHealth{Known: 3, Heard: 3}, nil, true
	s.Alerts = answer.AlertHealth{Recent: new(int)}
	s.Folds = s.Folds[:1]
	writeStatus(&out, s)
	fmt.Fprintln(&out)
	s.Lost = map[string]uint64{"bulk_ring": 528777}
	writeStatus(&out, s)
	consumertest.GoldenFile(t, "testdata/status.txt", out.Bytes())
}
