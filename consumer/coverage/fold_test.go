package coverage_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/schema"
)

func heartbeat(t *testing.T, host string, run, seq uint64, fill func(*schema.Builder)) *schema.Batch {
	b := schema.NewBuilder(schema.KindHost)
	if fill != nil {
		fill(b)
	}
	return consumertest.Decode(t, b.Encode(&schema.Header{Cluster: "c", Host: host, Run: run, Seq: seq}))
}

func apply(t *testing.T, f *coverage.Fold, batches ...*schema.Batch) {
	for _, b := range batches {
		if err := f.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewestHeartbeatWins(t *testing.T) {
	t.Parallel()
	tell := func(symbols ...string) func(*schema.Builder) {
		return func(b *schema.Builder) {
			p := b.Process(schema.Process{PID: 42, Comm: "train"})
			b.Coverage = []schema.Coverage{{Process: p, Asked: 400, Outside: symbols, ExportTables: 2}}
			b.Libraries = []schema.Library{{Path: "/lib/libcuda.so.1", Attached: 220, Absent: []string{"cuNew"},
				Failed: []string{"cuOdd"}}}
			b.GPU(schema.GPU{UUID: "GPU-1", Ordinal: 3, Name: "NVIDIA H200", Bus: "0000:06:00.0"})
		}
	}
	f := coverage.New()
	apply(t, f,
		heartbeat(t, "a", 5, 2, tell("cuMemcpy3DBatchAsync")),
		heartbeat(t, "a", 5, 1, tell("from before")), // delivered late
		heartbeat(t, "a", 4, 9, tell("of the run before")),
		heartbeat(t, "b", 1, 1, nil))
	report := f.Report()
	if len(report) != 2 || report[0].Host != "a" || report[1].Host != "b" {
		t.Fatalf("got %+v", report)
	}
	p := report[0].Processes
	if len(p) != 1 || p[0].ID.PID != 42 || p[0].Asked != 400 || p[0].ExportTables != 2 ||
		!slices.Equal(p[0].Outside, []string{"cuMemcpy3DBatchAsync"}) {
		t.Errorf("got %+v", p)
	}
	rebooted := schema.NewBuilder(schema.KindHost)
	rebooted.Linux = "6.18"
	apply(t, f, consumertest.Decode(t, rebooted.Encode(&schema.Header{Cluster: "c", Host: "b", BootID: "2",
		ClockOffset: 100, Run: 0, Seq: 1})),
		heartbeat(t, "b", 9, 9, nil)) // of the previous boot
	if got := f.Report()[1].Linux; got != "6.18" {
		t.Errorf("a heartbeat of an older boot won; Linux is %q", got)
	}
	apply(t, f, heartbeat(t, "a", 6, 1, nil))
	if again := f.Report()[0]; len(again.Libraries)+len(again.GPUs) != 0 || len(again.Processes) != 1 {
		t.Errorf("want no libraries and one process after a new run, got %+v", again)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	f := coverage.New()
	apply(t, f, heartbeat(t, "a", 1, 1, func(b *schema.Builder) {
		b.Libraries = []schema.Library{
			{Path: "/lib/libcuda.so.1", Inode: 1, Attached: 220, Absent: []string{"cuNew"}},
			{Path: "/lib/libcuda.so.1", Inode: 2, Attached: 7}, // in another mount namespace
			{Path: "/\xff/libcuda.so.1", Inode: 3, Attached: 5},
			{Path: "/\xfe/libcuda.so.1", Inode: 4, Attached: 6}, // the same label
		}
		b.GPU(schema.GPU{UUID: "GPU-1", Ordinal: 3, Name: "NVIDIA H200", Bus: "0000:06:00.0", Bytes: 150e9})
		b.GPU(schema.GPU{UUID: "GPU-\xff", Ordinal: 4, Bus: "bus"})
		b.GPU(schema.GPU{UUID: "GPU-\xfe", Ordinal: 4, Bus: "bus"})
		b.GPU(schema.GPU{UUID: "GPU-2", Ordinal: 5, Bus: "\xff"})
		b.GPU(schema.GPU{UUID: "GPU-2", Ordinal: 5, Bus: "\xfe"})
		b.Coverage = []schema.Coverage{{Process: b.Process(schema.Process{PID: 1}), Outside: []string{"x", "y"}}}
	}))
	want := `
# HELP gputap_gpu_info GPUs of a host. The value is always 1.
# TYPE gputap_gpu_info gauge
gputap_gpu_info{UUID="GPU-1",cluster="c",gpu="3",hostname="a",model_name="NVIDIA H200",pci_bus_id="0000:06:00.0"} 1
gputap_gpu_info{UUID="GPU-2",cluster="c",gpu="5",hostname="a",model_name="",pci_bus_id="�"} 1
gputap_gpu_info{UUID="GPU-�",cluster="c",gpu="4",hostname="a",model_name="",pci_bus_id="bus"} 1
# HELP gputap_gpu_memory_bytes Memory of a GPU; absent while unknown.
# TYPE gputap_gpu_memory_bytes gauge
gputap_gpu_memory_bytes{UUID="GPU-1",cluster="c",gpu="3",hostname="a"} 1.5e+11
# HELP gputap_library_symbols Driver functions that gputap knows, by library and state of the probe: attached, absent or failed.
# TYPE gputap_library_symbols gauge
gputap_library_symbols{cluster="c",hostname="a",library="/�/libcuda.so.1",state="absent"} 0
gputap_library_symbols{cluster="c",hostname="a",library="/�/libcuda.so.1",state="attached"} 5
gputap_library_symbols{cluster="c",hostname="a",library="/�/libcuda.so.1",state="failed"} 0
gputap_library_symbols{cluster="c",hostname="a",library="/lib/libcuda.so.1",state="absent"} 1
gputap_library_symbols{cluster="c",hostname="a",library="/lib/libcuda.so.1",state="attached"} 220
gputap_library_symbols{cluster="c",hostname="a",library="/lib/libcuda.so.1",state="failed"} 0
# HELP gputap_unseen_functions Driver functions without a probe that processes looked up and that handle memory or submit work.
# TYPE gputap_unseen_functions gauge
gputap_unseen_functions{cluster="c",hostname="a"} 2
`
	if err := testutil.CollectAndCompare(f, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestForgetRemovesOnlyTheHost(t *testing.T) {
	t.Parallel()
	f := coverage.New()
	apply(t, f, heartbeat(t, "a", 1, 1, nil), heartbeat(t, "b", 1, 1, nil))
	f.Forget("c", "a")
	if report := f.Report(); len(report) != 1 || report[0].Host != "b" {
		t.Errorf("got %+v, want host b alone", report)
	}
}

func TestRestoredFoldReportsTheSame(t *testing.T) {
	t.Parallel()
	f := coverage.New()
	consumertest.Take(t, f, consumertest.Traffic(t, 1, 300)...)
	want := f.Report()
	got := consumertest.Restore(t, coverage.New(), consumertest.Sections(t, f)).Report()
	if len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}
