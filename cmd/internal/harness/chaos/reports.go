package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// verifyReports compares the reports of the committed states with the published events.
func (f *fleet) verifyReports(ctx context.Context, t *truth) error {
	var faults []error
	for _, entry := range fold.All() {
		c := newComparison(entry, t)
		if err := f.restoreStates(ctx, entry, c.addShard); err != nil {
			return err
		}
		faults = append(faults, c.err())
	}
	err := errors.Join(faults...)
	if err == nil {
		f.Say("the reports of the committed states equal the published events of each process")
	}
	return err
}

// restoreStates restores the committed states of a fold as its next instance would.
func (f *fleet) restoreStates(ctx context.Context, entry fold.Entry, see func(fold consumer.Stateful)) error {
	create := func() consumer.Stateful { return entry.New() }
	c := consumer.New(consumer.Options{Instance: "verify"}, f.js, create, slog.New(slog.DiscardHandler))
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(reading) }()
	var folds []consumer.Stateful
	err := cluster.Until(ctx, 2*time.Minute, func() error {
		folds = nil
		c.Each(func(_ int, fold consumer.Stateful) { folds = append(folds, fold) })
		if len(folds) < f.shards {
			return fmt.Errorf("%d of %d committed states of %s are restored", len(folds), f.shards, entry.Name())
		}
		return nil
	})
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	for _, fold := range folds {
		see(fold)
	}
	return nil
}

// comparison compares a fold's report with the published events of each process.
type comparison struct {
	*truth
	fold               fold.Entry
	seen               map[schema.ProcessID]bool
	raised, suppressed float64 // alerts
	faults             []error // the first few
	moreFaults         int
}

func newComparison(entry fold.Entry, t *truth) *comparison {
	return &comparison{truth: t, fold: entry, seen: map[schema.ProcessID]bool{}}
}

func (c *comparison) fault(id schema.ProcessID, format string, args ...any) {
	if len(c.faults) == mostFaults {
		c.moreFaults++
		return
	}
	c.faults = append(c.faults, fmt.Errorf("%s, host %s/%s, pid %d: %w",
		c.fold.Name(), id.Cluster, id.Host, id.PID, fmt.Errorf(format, args...)))
}

// err returns the faults, processes that are not reported included.
func (c *comparison) err() error {
	if c.fold.Name() == fold.Anomaly.Name() {
		return c.compareAlerts()
	}
	for id, p := range c.processes {
		if !c.seen[id] && slices.ContainsFunc(c.fold.Kinds(), func(k schema.Kind) bool { return p.seen[k] }) {
			c.fault(id, "the process is not reported")
		}
	}
	if c.moreFaults > 0 {
		c.faults = append(c.faults, fmt.Errorf("%s: and %d more", c.fold.Name(), c.moreFaults))
	}
	return errors.Join(c.faults...)
}

// addShard compares the report of one shard.
func (c *comparison) addShard(state consumer.Stateful) {
	switch state := state.(type) {
	case *leak.Tracker:
		for _, p := range state.Report().Processes {
			if want := c.expect(p.ID, p.Calls); want != nil {
				c.compareMemory(&p, want)
			}
		}
	case *launch.Histogram:
		for _, p := range state.Report() {
			if want := c.expect(p.ID, p.Calls); want != nil {
				c.compareLaunches(&p, want)
			}
		}
	case *bandwidth.Meter:
		for _, p := range state.Report() {
			if want := c.expect(p.ID, p.Calls); want != nil {
				c.compareCopies(&p, want)
			}
		}
	case *anomaly.Detector:
		c.raised += metric(state, "gputap_anomaly_events_total")
		c.suppressed += metric(state, "gputap_anomaly_suppressed_total")
	}
}

// expect compares the reported calls of a process and returns its published events.
func (c *comparison) expect(id schema.ProcessID, calls []process.Call) *published {
	p := c.processes[id]
	if p == nil || c.seen[id] {
		c.fault(id, "the process was never published, or is reported twice")
		return nil
	}
	c.seen[id] = true
	want, got := map[string]uint64{}, map[string]uint64{}
	for _, kind := range c.fold.Kinds() {
		maps.Copy(want, p.calls[kind])
	}
	for _, call := range calls {
		got[call.Symbol] = call.OK + call.Failed + call.Recorded
		want[call.Symbol] += 0
	}
	for _, symbol := range slices.Sorted(maps.Keys(want)) {
		if got[symbol] != want[symbol] {
			c.fault(id, "%d calls of %s; %d were published", got[symbol], symbol, want[symbol])
		}
	}
	return p
}

func (c *comparison) compareMemory(p *leak.Process, want *published) {
	gpu, hostMem := holding{p.LiveBytes, p.UnfreedBytes}, holding{p.HostLiveBytes, p.HostUnfreedBytes}
	switch {
	case want.gap && p.Evidence == "complete":
		c.fault(p.ID, "evidence is %s, but memory events were withheld", p.Evidence)
	case want.exited && !want.unknown && p.ID.Cluster == clusterOf(0) && p.Evidence != "complete":
		c.fault(p.ID, "evidence is %s, but everything was published", p.Evidence)
	case !want.unknown && (p.Ended != want.ended || gpu != want.gpu || hostMem != want.hostMem):
		c.fault(p.ID, "ended %t, GPU memory %s, host memory %s; published: ended %t, %s, %s",
			p.Ended, gpu, hostMem, want.ended, want.gpu, want.hostMem)
	}
}

func (c *comparison) compareLaunches(p *launch.Process, want *published) {
	got := map[string]uint64{}
	for _, f := range p.Funcs {
		got[f.Mangled] += f.Launches
	}
	if !maps.Equal(got, want.launches) {
		c.fault(p.ID, "launches %v; published: %v", got, want.launches)
	}
}

func (c *comparison) compareCopies(p *bandwidth.Process, want *published) {
	got := map[route]moved{}
	for _, d := range p.Copies {
		got[route{d.Direction, d.Set}] = moved{d.Calls, d.Bytes}
	}
	if !maps.Equal(got, want.copies) {
		c.fault(p.ID, "copies %v; published: %v", got, want.copies)
	}
}

// compareAlerts expects one alert for each process and symbol whose allocations failed. No process of the recording
// outlives the alert's cooldown.
func (c *comparison) compareAlerts() error {
	first, all := uint64(0), uint64(0)
	for _, p := range c.processes {
		for _, n := range p.failed {
			first++
			all += n
		}
	}
	if c.raised != float64(first) || c.suppressed != float64(all-first) {
		return fmt.Errorf("anomaly raised %g alerts and suppressed %g; %d allocations failed, %d were the first",
			c.raised, c.suppressed, all, first)
	}
	return nil
}

// metric sums the series of a metric.
func metric(c prometheus.Collector, name string) (sum float64) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, _ := registry.Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += cmp.Or(m.GetCounter().GetValue(), m.GetGauge().GetValue())
			}
		}
	}
	return sum
}
