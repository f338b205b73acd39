package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/table"
	"github.com/gputap/gputap/cmd/internal/simulate"
)

const (
	liveAge    = 50 * time.Millisecond
	settle     = 3 * time.Second        // until all hosts publish
	sampleWait = 500 * time.Millisecond // between two looks at the lag
)

// span holds the messages and the usage of a time in which hosts published at a fixed rate.
type span struct {
	use
	stored float64    // messages
	folds  []liveFold // nil: without consumers
}

type liveFold struct {
	cpu, mostLag float64
	first, last  float64 // messages so far
}

// live has the hosts publish at a fixed rate, in small batches.
func (b *bench) live(ctx context.Context, rate float64) error {
	if err := b.purge(ctx, true); err != nil {
		return err
	}
	b.Say("live: %.0f events/s in batches of %s", rate, liveAge)
	p, err := b.startSimulator(fmt.Sprintf("live%.0f", rate), rate, liveAge)
	if err != nil {
		return err
	}
	if err := cluster.Sleep(ctx, settle); err != nil {
		return err
	}
	alone, err := b.span(ctx, p)
	if err != nil {
		return err
	}
	var list []*instances
	for i, fold := range folds {
		in, err := b.startInstances(ctx, fold, 1, i)
		if err != nil {
			return err
		}
		list = append(list, in)
	}
	perSecond := alone.stored / alone.seconds
	if err := cluster.Until(ctx, time.Minute, func() error { return b.caughtUp(list, perSecond) }); err != nil {
		b.Say("the folds do not catch up with the hosts: %v", err)
	}
	with, err := b.span(ctx, p, list...)
	if err != nil {
		return err
	}
	for _, in := range list {
		if err := in.stop(); err != nil {
			return err
		}
	}
	stats, err := stopSimulator(ctx, p)
	if err != nil {
		return err
	}
	b.printLive(alone, with, &stats)
	return nil
}

// caughtUp returns nil once each fold lags by less than a second.
func (b *bench) caughtUp(list []*instances, perSecond float64) error {
	for _, in := range list {
		s, err := b.sample(in)
		if err != nil {
			return err
		}
		if s.messages == 0 || s.lag > perSecond {
			return fmt.Errorf("%s lags by %.0f messages", in.fold, s.lag)
		}
	}
	return nil
}

// span measures the usage of the simulator and the folds for a while.
func (b *bench) span(ctx context.Context, simulator *cluster.Process, list ...*instances) (r *span, err error) {
	r = &span{folds: make([]liveFold, len(list))}
	processes := []*cluster.Process{simulator}
	for _, in := range list {
		processes = append(processes, in.processes...)
	}
	look := func() error {
		for i, in := range list {
			s, err := b.sample(in)
			if err != nil {
				return err
			}
			f := &r.folds[i]
			f.first, f.last, f.mostLag = cmp.Or(f.first, s.messages), s.messages, max(f.mostLag, s.lag)
		}
		return nil
	}
	r.use, err = b.using(func() error {
		begin, err := b.stored(ctx)
		if err != nil {
			return err
		}
		for until := time.Now().Add(b.liveSpan); time.Now().Before(until); {
			err := errors.Join(look(), cluster.Sleep(ctx, sampleWait), cluster.CheckRunning(processes...))
			if err != nil {
				return err
			}
		}
		end, err := b.stored(ctx)
		r.stored = end - begin
		return errors.Join(err, look())
	}, processes...)
	if err != nil {
		return nil, err
	}
	for i := range list {
		r.folds[i].cpu = r.cpu[1+i]
	}
	return r, nil
}

func (b *bench) printLive(alone, with *span, s *simulate.Stats) {
	events, batches, bytes := float64(s.AckedEvents), float64(s.AckedBatches), float64(s.AckedBytes)
	f := fmt.Sprintf
	table.Head(f("Live, %.0f events/s of %d hosts in batches of 50 ms, %d shards", s.AskedRate, hosts, b.shards),
		"what", "without consumers", "with an instance of "+strings.Join(folds, " and of "))
	row := func(what string, cell func(*span) string) { table.Row(what, cell(alone), cell(with)) }
	row("messages/s", func(s *span) string { return f("%.0f", s.stored/s.seconds) })
	row("CPU µs per message stored: nodes together, simulator", func(s *span) string {
		return f("%.1f, %.1f", s.nodesCPU/s.stored*1e6, s.cpu[0]/s.stored*1e6)
	})
	row("bytes per message: into the nodes, out of them", func(s *span) string {
		return f("%.0f, %.0f", s.in/s.stored, s.out/s.stored)
	})
	row("CPU usage of each node; machine idle", func(s *span) string {
		return f("%s; %s", b.nodesBusy(&s.use), percent(s.idle))
	})
	foldRow := func(what, format string, value func(*liveFold) float64) {
		var cells []string
		for i := range with.folds {
			cells = append(cells, f(format, value(&with.folds[i])))
		}
		table.Row(what+": "+strings.Join(folds, ", "), "", strings.Join(cells, ", "))
	}
	foldRow("% of the instance's CPU", "%.0f", func(l *liveFold) float64 { return 100 * l.cpu / with.seconds })
	foldRow("CPU µs per message", "%.1f", func(l *liveFold) float64 { return l.cpu / (l.last - l.first) * 1e6 })
	foldRow("most lag, messages", "%.0f", func(l *liveFold) float64 { return l.mostLag })
	fmt.Printf("\nA batch has %.1f events and %.0f bytes. On disk per byte stored, one replica, Raft included: %.2f. "+
		"The simulator kept up: %v.\n", events/batches, bytes/batches, b.diskUsage()/nodes/bytes, s.KeptUp)
}
