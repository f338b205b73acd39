package snapshot_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/job"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/schema"
)

// fold is a fold with a snapshot and metrics.
type fold interface {
	consumertest.Saved
	prometheus.Collector
}

// suite is the snapshot tests of one fold. Reports are compared as JSON.
type suite struct {
	steps func(tb testing.TB, seed uint64, n int) []consumertest.Step // its traffic; nil: of every kind

	name       string
	new        func() fold
	report     func(fold) any                  // everything that the fold reports
	hostReport func(fold, snapshot.HostID) any // the part of report about one host

	limited bool // the fold limits the series of a metric family and counts the rest as comm="other"
	tensors bool // the fold reads tensor batches
	golden  int  // steps of traffic in the golden snapshot
	damage  int  // steps of traffic in the snapshot that is damaged; half as many follow
}

// Every fold that saves its state has a row here.
var suites = []suite{
	{
		name: "leak",
		new:  func() fold { return leak.New(leak.Config{KeepEnded: time.Minute, Window: 10 * time.Second}) },
		report: func(f fold) any {
			return struct {
				Report leak.Report
				Top    []leak.Allocation
				Alerts []alert.Alert
			}{f.(*leak.Tracker).Report(), f.(*leak.Tracker).Top(3), f.(*leak.Tracker).Alerts()}
		},
		hostReport: func(f fold, id snapshot.HostID) any {
			return of(id, f.(*leak.Tracker).Report().Processes, func(p leak.Process) snapshot.HostID {
				return hostOf(p.Info)
			})
		},
		limited: true, golden: 8, damage: 12,
	},
	{
		name:   "launch",
		new:    func() fold { return launch.New(launch.Config{Keep: time.Minute, MaxKernels: 20}) },
		report: func(f fold) any { return f.(*launch.Histogram).Report() },
		hostReport: func(f fold, id snapshot.HostID) any {
			return of(id, f.(*launch.Histogram).Report(), func(p launch.Process) snapshot.HostID {
				return hostOf(p.Info)
			})
		},
		limited: true, golden: 24, damage: 30,
	},
	{
		name:   "bandwidth",
		new:    func() fold { return bandwidth.New(bandwidth.Config{Keep: time.Minute}) },
		report: func(f fold) any { return f.(*bandwidth.Meter).Report() },
		hostReport: func(f fold, id snapshot.HostID) any {
			return of(id, f.(*bandwidth.Meter).Report(), func(p bandwidth.Process) snapshot.HostID {
				return hostOf(p.Info)
			})
		},
		limited: true, golden: 24, damage: 30,
	},
	{
		name: "anomaly",
		new: func() fold {
			return anomaly.New(anomaly.Config{Rules: rule.Config{Mode: rule.Alert, Cooldown: time.Second,
				AllocSize: rule.AllocSize{Hold: time.Microsecond}, OOM: rule.OOM{Recover: time.Microsecond}}})
		},
		report: func(f fold) any { return f.(*anomaly.Detector).Alerts() },
		hostReport: func(f fold, id snapshot.HostID) any {
			return of(id, f.(*anomaly.Detector).Alerts(), func(a anomaly.Alert) snapshot.HostID {
				return snapshot.HostID{Cluster: a.Cluster, Host: a.Host}
			})
		},
		tensors: true, golden: 40, damage: 30,
	},
	{
		name:   "coverage",
		new:    func() fold { return coverage.New() },
		report: func(f fold) any { return f.(*coverage.Fold).Report() },
		hostReport: func(f fold, id snapshot.HostID) any {
			return of(id, f.(*coverage.Fold).Report(), func(h coverage.Host) snapshot.HostID {
				return snapshot.HostID{Cluster: h.Cluster, Host: h.Host}
			})
		},
		golden: 40, damage: 30,
	},
	{
		name:   "tensor",
		new:    func() fold { return tensor.New(tensor.Config{Keep: time.Minute}) },
		report: func(f fold) any { return f.(*tensor.Fold).Report(3) },
		hostReport: func(f fold, id snapshot.HostID) any {
			return of(id, f.(*tensor.Fold).Report(3), func(p tensor.Process) snapshot.HostID { return hostOf(p.Info) })
		},
		tensors: true, golden: 8, damage: 12,
	},
	{
		name:       "rank",
		new:        func() fold { return rank.New(rank.Config{}) },
		report:     func(fold) any { return nil }, // the sections and the metrics are all that it shows
		hostReport: func(fold, snapshot.HostID) any { return nil },
		steps:      rankTraffic, golden: 100, damage: 90,
	},
	{
		name:   "job",
		new:    func() fold { return job.New(job.Config{Severity: alert.Warning}) },
		report: func(f fold) any { return []any{f.(*job.Fold).Report(), f.(*job.Fold).Alerts()} },
		hostReport: func(f fold, id snapshot.HostID) any {
			return of(id, f.(*job.Fold).Report(), func(j job.Job) snapshot.HostID {
				return snapshot.HostID{Cluster: j.Cluster, Host: j.Name}
			})
		},
		steps: jobTraffic, golden: 20, damage: 20,
	},
}

// of returns the part of a report that is about one host.
func of[T any](id snapshot.HostID, report []T, host func(T) snapshot.HostID) []T {
	return slices.DeleteFunc(report, func(one T) bool { return host(one) != id })
}

func hostOf(i process.Info) snapshot.HostID {
	return snapshot.HostID{Cluster: i.ID.Cluster, Host: i.ID.Host}
}

// recorded returns the recorded PyTorch run of schema/testdata.
func recorded(tb testing.TB) (steps []consumertest.Step) {
	tb.Helper()
	file, err := os.Open("../../schema/testdata/pytorch.batches.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	next := schema.Recording(unpacked)
	message, err := next()
	for ; err == nil; message, err = next() {
		steps = append(steps, consumertest.Step{Message: slices.Clone(message)})
	}
	if !errors.Is(err, io.EOF) {
		tb.Fatal(err)
	}
	return steps
}

// testGolden checks that the snapshot in testdata restores to the view in testdata and is saved again byte by byte. A
// snapshot that exists is never rewritten: it stands for states that running programs have saved. To replace it after a
// change of an unreleased form, delete the file and run with -update.
func (s suite) testGolden(t *testing.T) {
	file, view := "testdata/"+s.name+"_v1.golden", "testdata/"+s.name+"_v1.txt"
	if _, err := os.Stat(file); os.IsNotExist(err) {
		fold := s.new()
		consumertest.Take(t, fold, s.traffic(t, 4, s.golden)...)
		var w snapshot.Writer
		for _, section := range consumertest.Sections(t, fold) {
			w.Section(section)
		}
		consumertest.GoldenFile(t, file, w.Data())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := snapshot.NewReader(data)
	var saved []snapshot.Section
	for r.Room(1) > 0 {
		saved = append(saved, r.Section())
	}
	if r.Err() != nil || len(saved) == 0 {
		t.Fatalf("%s: %d sections, %v", file, len(saved), r.Err())
	}
	fold := consumertest.Restore(t, s.new(), saved)
	consumertest.GoldenFile(t, view, s.view(t, fold))
	same(t, 0, "golden", consumertest.Sections(t, fold), saved)
}
