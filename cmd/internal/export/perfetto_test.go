package export

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/backtest"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

func TestTraceEqualsNaiveFigures(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	file := parseTrace(t, exported(t, "perfetto", f.record(), "-o", "-", "--min-bytes", "1MiB"))
	calls, kernels, streams := newFigures(), 0, 0
	for _, s := range file.slices {
		if s.track.thread != "" {
			bytes, _ := strconv.ParseUint(s.args["bytes"], 10, 64)
			calls.add(s.category, bytes, float64(s.took)/1e9)
		}
	}
	for _, s := range append(file.slices, file.instants...) {
		if s.track.thread != "" && s.name == "gemm(float*)" && s.args["grid"] == "4×2×1" {
			kernels++
		}
		if strings.HasPrefix(s.track.name, "CUDA stream 0x") {
			streams++
		}
	}
	for _, kind := range []string{"memory", "copy", "sync"} {
		if calls.counts[kind] != f.counts[kind] || calls.bytes[kind] != f.bytes[kind] ||
			calls.took[kind] != f.took[kind] {
			t.Errorf("%s: %d slices, %d bytes, %d ns; want %d, %d, %d", kind, calls.counts[kind], calls.bytes[kind],
				calls.took[kind], f.counts[kind], f.bytes[kind], f.took[kind])
		}
	}
	if kernels != f.counts["launch"] || streams != f.counts["launch"]+f.counts["copy"] {
		t.Errorf("%d launches of %d, %d events on CUDA streams", kernels, f.counts["launch"], streams)
	}
	f.compareLifetimes(file)
	f.compareCounters(file)
}

func (f *fleet) compareLifetimes(file *traceFile) {
	f.t.Helper()
	var got, want []string
	for _, s := range file.slices {
		if s.category == "allocation" {
			got = append(got, fmt.Sprint(s.args["address"], " ", s.args["bytes"], " ", s.args["class"], " ",
				s.args["tid"], " ", s.args["end"], " ", s.at))
		}
	}
	for _, l := range f.lives {
		end := "live"
		if l.until > 0 {
			end = "freed"
		}
		if l.bytes >= 1<<20 {
			want = append(want, fmt.Sprintf("%#x %d %s %d %s %d", l.ptr, l.bytes, l.class, l.tid, end,
				wallOffset+int64(l.from)))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.t.Errorf("%d lifetimes, want %d; the first is %.1q, want %.1q", len(got), len(want), got, want)
	}
}

// compareCounters compares the last point of each counter, and its number of points.
func (f *fleet) compareCounters(file *traceFile) {
	f.t.Helper()
	last, points := map[string]uint64{}, map[string]int{}
	for _, p := range file.points {
		if strings.HasPrefix(p.track.name, "GPU memory") {
			key := p.track.parent.name + ": " + p.track.name
			last[key] = p.value
			points[key]++
		}
	}
	wantLast, wantPoints := map[string]uint64{}, map[string]int{}
	for _, l := range f.lives {
		name := fmt.Sprintf("%s (%d) on %s: GPU memory on GPU-%s", l.comm, l.pid, l.host, l.host)
		for _, key := range []string{name, name + ", " + l.class} {
			wantPoints[key]++
			if l.until == 0 {
				wantLast[key] += l.bytes
			} else {
				wantPoints[key]++
			}
		}
	}
	for key := range wantPoints {
		if points[key] != wantPoints[key] || last[key] != wantLast[key] {
			f.t.Errorf("%s has %d points and ends at %v; want %d, %v", key, points[key], last[key], wantPoints[key],
				wantLast[key])
		}
	}
	if len(points) != len(wantPoints) {
		f.t.Errorf("%d counters, want %d", len(points), len(wantPoints))
	}
}

// TestTraceShowsMemoryFromBeforeAndItsEnd begins behind an allocation, and has the end of its process.
func TestTraceShowsMemoryFromBeforeAndItsEnd(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	f := &fleet{t: t}
	p.Alloc(7, 0x1000, 4<<20, 1e9, 5)
	f.add(schema.KindMemory, h.Message())
	p.Alloc(7, 0x800000, 2<<20, 3e9, 5)
	f.add(schema.KindMemory, h.Message())
	p.Free(7, 0x800000, 4e9, 5).Exit(5e9)
	f.add(schema.KindMemory, h.Message())
	since := time.Unix(0, wallOffset).Add(time.Second).UTC().Format(time.RFC3339)
	file := parseTrace(t, exported(t, "perfetto", f.record(), "-o", "-", "--since", since))
	var got []string
	for _, s := range file.slices {
		if s.category == "allocation" {
			got = append(got, fmt.Sprint(s.args["address"], " at ", s.at-file.first, " for ", s.took, " since ",
				s.args["allocated"], " ", s.args["end"]))
		}
	}
	for _, p := range file.points {
		if strings.HasSuffix(p.track.name, "GPU-0") {
			got = append(got, fmt.Sprint(p.value, " at ", p.at-file.first))
		}
	}
	want := []string{
		"0x1000 at 0 for 2000000000 since 2023-11-14T22:13:21.000000005Z unfreed",
		"0x800000 at 5 for 999999995 since  freed",
		"4194304 at 0", "6291456 at 5", "4194304 at 1000000000", "0 at 2000000000",
	}
	if !slices.Equal(got, want) || file.first != wallOffset+3e9 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestTraceHasTheAlertsOfBacktest compares the instants with the alerts that backtest computes of recordings of real
// programs.
func TestTraceHasTheAlertsOfBacktest(t *testing.T) {
	t.Parallel()
	for path, comm := range map[string]string{"free": "odd_free_*", "size-oom-pageable": "odd_oom_abort"} {
		path = "../harness/corpus/testdata/third/" + path + ".gputap"
		s, err := source.Open(t.Context(), path)
		check(t, err)
		all, err := backtest.Alerts(t.Context(), s, time.Time{}, time.Time{}, discard())
		s.Close()
		check(t, err)
		var got, want []string
		for _, i := range all {
			if matches, _ := filepath.Match(comm, i.Comm); !matches {
				continue
			}
			want = append(want,
				fmt.Sprint(i.Fired.UnixNano(), " ", i.Rule, " ", i.Severity, " ", i.Message, " ", i.PID))
		}
		file := parseTrace(t, exported(t, "perfetto", path, "-o", "-", "--comm", comm))
		for _, e := range file.instants {
			if e.category != "alert" {
				continue
			}
			pid := "0"
			if e.track.parent != nil {
				pid = e.track.parent.process
			}
			got = append(got, fmt.Sprint(e.at, " ", e.name, " ", e.args["severity"], " ", e.args["message"], " ", pid))
		}
		slices.Sort(got)
		slices.Sort(want)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", path, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		file = parseTrace(t, exported(t, "perfetto", path, "-o", "-", "--alerts=false", "--comm", comm))
		if slices.ContainsFunc(file.instants, func(e *traceSlice) bool { return e.category == "alert" }) {
			t.Errorf("%s: --alerts=false shows alerts", path)
		}
	}
}

// TestAlertTracks has an alert about a process, one about a host and one about a job.
func TestAlertTracks(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	at := time.Unix(0, wallOffset).UTC()
	tr := &trace{incidents: []*backtest.Incident{
		{Fired: at, Alert: alert.Alert{Rule: "oom", Host: "gpu-1", PID: 7, Severity: "critical", Message: "full",
			Value: 1.5, Since: at}},
		{Fired: at, Cleared: at.Add(time.Second), Alert: alert.Alert{Rule: "unhealthy", Host: "gpu-1", Since: at}},
		{Fired: at, Alert: alert.Alert{Rule: "straggler", Job: "slurm:1", Since: at}},
	}}
	tr.begin(&out, wallOffset)
	tr.tracks = newTracks(&tr.traceWriter)
	tr.process(schema.ProcessID{Host: "gpu-1", PID: 7, Start: 1}, "old", "")
	tr.process(schema.ProcessID{Host: "gpu-1", PID: 7, Start: 2}, "train", "slurm:1")
	check(t, tr.writeAlerts())
	var got []string
	for _, e := range parseTrace(t, out.Bytes()).instants {
		of := "-"
		if e.track.parent != nil {
			of = e.track.parent.name + " " + e.track.parent.labels
		}
		got = append(got, fmt.Sprintf("%s | %s | %s | %s %s %s %s", of, e.track.name, e.name, e.args["severity"],
			e.args["message"], e.args["value"], e.args["cleared"]))
	}
	want := []string{"train (7) on gpu-1 slurm:1 | alerts | oom | critical full 1.5 ",
		"- | alerts of gpu-1 | unhealthy |    2023-11-14T22:13:21Z", "- | alerts of slurm:1 | straggler |    "}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestSlicesOfThreadsDoNotOverlap measures the wall clock again between the calls of a thread, and then sets it.
func TestSlicesOfThreadsDoNotOverlap(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "train")
	f := &fleet{t: t}
	for i, change := range []int64{0, -300, +200, 5e9, -300} {
		h.Header.ClockOffset += change
		p.Alloc(7, uint64(i+1)<<20, 4096, schema.KTime(1e9+i*1000), 900)
		f.add(schema.KindMemory, h.Message())
	}
	var got []string
	for _, s := range parseTrace(t, exported(t, "perfetto", f.record(), "-o", "-")).slices {
		if s.track.thread != "" {
			got = append(got, fmt.Sprint(s.args["address"], " at ", s.at-wallOffset, " for ", s.took))
		}
	}
	want := []string{"0x100000 at 1000000000 for 900", "0x200000 at 1000001000 for 900",
		"0x300000 at 1000002000 for 900", "0x400000 at 6000002900 for 900", "0x500000 at 6000003900 for 900"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
