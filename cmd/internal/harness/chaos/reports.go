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

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/reference"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// takeUp gives the committed states of a fold as the instance that comes next has them.
func (f *fleet) takeUp(ctx context.Context, name string, see func(fold consumer.Stateful)) error {
	c := consumer.New(consumer.Options{Instance: "verify"}, f.js, reference.Folds[name], slog.New(slog.DiscardHandler))
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(reading) }()
	var folds []consumer.Stateful
	err := cluster.Until(ctx, 2*time.Minute, func() error {
		folds = nil
		c.Each(func(_ int, fold consumer.Stateful) { folds = append(folds, fold) })
		if len(folds) < f.shards {
			return fmt.Errorf("%d of %d committed states of %s are taken up", len(folds), f.shards, name)
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

// view compares what a fold shows with what was published of each process.
type view struct {
	*truth
	fold         string
	seen         map[schema.ProcessID]bool
	raised, held float64 // alerts
	faults       []error // the first few
	more         int
}

func newView(fold string, t *truth) *view {
	return &view{truth: t, fold: fold, seen: map[schema.ProcessID]bool{}}
}

func (v *view) fault(id schema.ProcessID, format string, args ...any) {
	if len(v.faults) == mostFaults {
		v.more++
		return
	}
	v.faults = append(v.faults, fmt.Errorf("%s shows of host %s/%s, pid %d: %w", v.fold, id.Cluster, id.Host, id.PID, fmt.Errorf(format, args...)))
}

// err also holds what was published and is not shown.
func (v *view) err() error {
	if v.fold == "anomaly" {
		return v.compareAlerts()
	}
	for id, p := range v.processes {
		if !v.seen[id] && slices.ContainsFunc(kindsOf[v.fold], func(k schema.Kind) bool { return p.seen[k] }) {
			v.fault(id, "nothing")
		}
	}
	if v.more > 0 {
		v.faults = append(v.faults, fmt.Errorf("%s: and %d more", v.fold, v.more))
	}
	return errors.Join(v.faults...)
}

// see takes in one shard.
func (v *view) see(fold consumer.Stateful) {
	switch fold := fold.(type) {
	case *leak.Tracker:
		for _, p := range fold.Report().Processes {
			if want := v.process(p.ID, p.Calls); want != nil {
				v.compareMemory(&p, want)
			}
		}
	case *launch.Histogram:
		for _, p := range fold.Report() {
			if want := v.process(p.ID, p.Calls); want != nil {
				v.compareLaunches(&p, want)
			}
		}
	case *bandwidth.Meter:
		for _, p := range fold.Report() {
			if want := v.process(p.ID, p.Calls); want != nil {
				v.compareCopies(&p, want)
			}
		}
	case *anomaly.Detector:
		v.raised += total(fold, "gputap_anomaly_events_total")
		v.held += total(fold, "gputap_anomaly_suppressed_total")
	}
}

// process is what was published of one that is shown with these calls.
func (v *view) process(id schema.ProcessID, calls []process.Call) *told {
	p := v.processes[id]
	if p == nil || v.seen[id] {
		v.fault(id, "what was never published, or is shown twice")
		return nil
	}
	v.seen[id] = true
	want, got := map[string]uint64{}, map[string]uint64{}
	for _, kind := range kindsOf[v.fold] {
		maps.Copy(want, p.calls[kind])
	}
	for _, c := range calls {
		got[c.Symbol] = c.OK + c.Failed + c.Recorded
		want[c.Symbol] += 0
	}
	for _, symbol := range slices.Sorted(maps.Keys(want)) {
		if got[symbol] != want[symbol] {
			v.fault(id, "%d calls of %s; %d were published", got[symbol], symbol, want[symbol])
		}
	}
	return p
}

func (v *view) compareMemory(p *leak.Process, want *told) {
	gpu, hostMem := holding{p.LiveBytes, p.UnfreedBytes}, holding{p.HostLiveBytes, p.HostUnfreedBytes}
	switch {
	case want.gap && p.Evidence == "complete":
		v.fault(p.ID, "%s: memory events of it were withheld", p.Evidence)
	case want.exited && !want.torn && p.ID.Cluster == clusterOf(0) && p.Evidence != "complete":
		v.fault(p.ID, "%s: all of it was published", p.Evidence)
	case !want.torn && (p.Ended != want.ended || gpu != want.gpu || hostMem != want.hostMem):
		v.fault(p.ID, "ended %t, %s of its GPUs, %s of its host; published were ended %t, %s and %s", p.Ended, gpu, hostMem, want.ended, want.gpu, want.hostMem)
	}
}

func (v *view) compareLaunches(p *launch.Process, want *told) {
	got := map[string]uint64{}
	for _, f := range p.Funcs {
		got[f.Mangled] += f.Launches
	}
	if !maps.Equal(got, want.launches) {
		v.fault(p.ID, "launches %v; published were %v", got, want.launches)
	}
}

func (v *view) compareCopies(p *bandwidth.Process, want *told) {
	got := map[way]moved{}
	for _, c := range p.Copies {
		got[way{c.Direction, c.Set}] = moved{c.Calls, c.Bytes}
	}
	if !maps.Equal(got, want.copies) {
		v.fault(p.ID, "copies %v; published were %v", got, want.copies)
	}
}

// compareAlerts: a process that found no memory is told of once for each call that it asked with, and no process lasts
// until it is told of again.
func (v *view) compareAlerts() error {
	once, all := uint64(0), uint64(0)
	for _, p := range v.processes {
		for _, n := range p.failed {
			once++
			all += n
		}
	}
	if v.raised != float64(once) || v.held != float64(all-once) {
		return fmt.Errorf("anomaly raised %g alerts and held %g back; %d allocations that found no memory were published, %d of them the first of their process",
			v.raised, v.held, all, once)
	}
	return nil
}

// verifyViews compares what the committed states show with what was published.
func (f *fleet) verifyViews(ctx context.Context, t *truth) error {
	var all []error
	for _, name := range consumers {
		v := newView(name, t)
		if err := f.takeUp(ctx, name, v.see); err != nil {
			return err
		}
		all = append(all, v.err())
	}
	return errors.Join(all...)
}

// total sums a metric.
func total(c prometheus.Collector, name string) (sum float64) {
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
