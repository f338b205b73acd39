package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// verifyReports compares the reports of the committed states with the published events.
func (f *fleet) verifyReports(ctx context.Context, t *truth) error {
	var faults []error
	for _, entry := range entriesTo(newOutputs()) {
		folds, err := f.restoreStates(ctx, entry)
		if err != nil {
			return err
		}
		faults = append(faults, t.compareReports(entry, folds))
	}
	err := errors.Join(faults...)
	if err == nil {
		f.Say("the reports of the committed states equal the published events of each process")
	}
	return err
}

// restoreStates restores the committed states of a fold as its next instance would.
func (f *fleet) restoreStates(ctx context.Context, entry fold.Entry) (folds []consumer.Stateful, err error) {
	create := func() consumer.Stateful { return entry.New() }
	c := consumer.New(consumer.Options{Instance: "verify"}, f.js, create, slog.New(slog.DiscardHandler))
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(reading) }()
	err = cluster.Until(ctx, 2*time.Minute, func() error {
		folds = nil
		c.Each(func(_ int, fold consumer.Stateful) { folds = append(folds, fold) })
		if len(folds) < shards {
			return fmt.Errorf("%d of %d committed states of %s are restored", len(folds), shards, entry.Name())
		}
		return nil
	})
	stop()
	return folds, errors.Join(err, <-done)
}

// comparison compares a fold's reports with the published events of each process.
type comparison struct {
	*truth
	fold   fold.Entry
	seen   map[schema.ProcessID]bool
	faults []error
}

// compareReports compares the reports of a fold's states, one for each shard. It passes over a fold that it does not
// know.
func (t *truth) compareReports(entry fold.Entry, states []consumer.Stateful) error {
	c := &comparison{truth: t, fold: entry, seen: map[schema.ProcessID]bool{}}
	raised, suppressed := 0.0, 0.0
	for _, state := range states {
		switch state := state.(type) {
		case *fold.Memory:
			for _, p := range state.Tracker.Report().Processes {
				c.compareMemory(&p, c.expect(p.ID, p.Calls))
			}
		case *launch.Histogram:
			for _, p := range state.Report() {
				got := map[string]uint64{}
				for _, f := range p.Funcs {
					got[f.Mangled] += f.Launches
				}
				compareCounts(c, p.ID, "launches", got, c.expect(p.ID, p.Calls).launches)
			}
		case *bandwidth.Meter:
			for _, p := range state.Report() {
				got := map[route]moved{}
				for _, d := range p.Copies {
					got[route{d.Direction, d.Set}] = moved{d.Calls, d.Bytes}
				}
				compareCounts(c, p.ID, "copies", got, c.expect(p.ID, p.Calls).copies)
			}
		case *fold.Anomalies:
			raised += metric(state, "gputap_anomaly_events_total", "oom")
			suppressed += metric(state, "gputap_anomaly_suppressed_total", "oom")
		default:
			return nil
		}
	}
	if entry.Name() == fold.Anomaly.Name() {
		return c.compareAlerts(raised, suppressed)
	}
	for id, p := range c.processes {
		if !c.seen[id] && slices.ContainsFunc(counted(entry), func(k schema.Kind) bool { return p.seen[k] }) {
			c.fault(id, "the process is not reported")
		}
	}
	return firstOf(c.faults)
}

// counted are the kinds whose calls a fold counts. The launch fold reads sync batches for gaps, which are no calls.
func counted(entry fold.Entry) []schema.Kind {
	return slices.DeleteFunc(slices.Clone(entry.Kinds()), func(k schema.Kind) bool {
		return k == schema.KindSync && entry.Name() == fold.Launch.Name()
	})
}

func (c *comparison) fault(id schema.ProcessID, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s, host %s/%s, pid %d: %w",
		c.fold.Name(), id.Cluster, id.Host, id.PID, fmt.Errorf(format, args...)))
}

// expect compares the reported calls of a process and returns its published events.
func (c *comparison) expect(id schema.ProcessID, calls []process.Call) *published {
	p := c.processes[id]
	if p == nil || c.seen[id] {
		c.fault(id, "the process was never published, or is reported twice")
		return &published{unknown: true}
	}
	c.seen[id] = true
	want, got := map[string]uint64{}, map[string]uint64{}
	for _, kind := range counted(c.fold) {
		maps.Copy(want, p.calls[kind])
	}
	for _, call := range calls {
		if n := call.OK + call.Failed + call.Recorded; n > 0 {
			got[call.Symbol] = n
		}
	}
	compareCounts(c, id, "calls", got, want)
	return p
}

func compareCounts[K, V comparable](c *comparison, id schema.ProcessID, what string, got, want map[K]V) {
	if !maps.Equal(got, want) {
		c.fault(id, "%s %v; published: %v", what, got, want)
	}
}

func (c *comparison) compareMemory(p *leak.Process, want *published) {
	gpu, hostMem := holding{p.LiveBytes, p.UnfreedBytes}, holding{p.HostLiveBytes, p.HostUnfreedBytes}
	switch {
	case want.gap && p.Evidence == "complete":
		c.fault(p.ID, "evidence is %s, but memory events were withheld", p.Evidence)
	case want.exited && !want.unknown && p.ID.Cluster == clusterOf(0) && p.Evidence != "complete":
		c.fault(p.ID, "evidence is %s, but everything was published", p.Evidence)
	case !want.unknown && (p.Ended != want.ended || gpu != want.gpu || hostMem != want.hostMem):
		c.fault(p.ID, "ended %t, GPU memory %+v, host memory %+v; published: ended %t, %+v, %+v",
			p.Ended, gpu, hostMem, want.ended, want.gpu, want.hostMem)
	}
}

// compareAlerts expects that each failed allocation is in an alert or counted as suppressed. A failure of a process
// whose exit was not published may still wait for a success, and no process of the recording has one.
func (t *truth) compareAlerts(raised, suppressed float64) error {
	processes, waiting, all := uint64(0), uint64(0), uint64(0)
	for _, p := range t.processes {
		for _, n := range p.failed {
			all += n
		}
		if len(p.failed) > 0 {
			processes++
			if !p.exited {
				waiting++
			}
		}
	}
	if got := uint64(raised + suppressed); got > all || got+waiting < all || uint64(raised) > processes {
		return fmt.Errorf("anomaly raised %g alerts and suppressed %g; %d allocations of %d processes failed, and %d "+
			"may still wait", raised, suppressed, all, processes, waiting)
	}
	return nil
}

// metric sums the series of a metric whose rule begins with a word.
func metric(c prometheus.Collector, name, rule string) (sum float64) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, _ := registry.Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			ofRule := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName() == "rule" && strings.HasPrefix(l.GetValue(), rule)
			})
			if family.GetName() == name && ofRule {
				sum += cmp.Or(m.GetCounter().GetValue(), m.GetGauge().GetValue())
			}
		}
	}
	return sum
}
