package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

const (
	settle     = 3 * time.Second        // until all hosts publish
	sampleWait = 500 * time.Millisecond // between two looks at the lag
)

// live has the hosts publish at a fixed rate, in small batches.
func (b *bench) live(ctx context.Context, rate float64, r *liveResult) error {
	if err := b.purge(ctx, true); err != nil {
		return err
	}
	b.Say("live: %.0f events/s in batches of %s", rate, liveAge)
	p := b.simulator("live"+strconv.FormatFloat(rate, 'f', 0, 64), rate, liveAge, 24*time.Hour)
	if err := errors.Join(b.start(p), cluster.Sleep(ctx, settle)); err != nil {
		return err
	}
	if err := b.liveAlone(ctx, p, &r.Alone); err != nil {
		return err
	}
	var folds []*instances
	for i, fold := range b.folds {
		in, err := b.startInstances(ctx, fold, 1, b.instanceCPUs[i%len(b.instanceCPUs):])
		if err != nil {
			return err
		}
		folds = append(folds, in)
	}
	var err error
	if r.CaughtUp, err = b.caughtUp(ctx, folds, r.Alone.MessagesPerSecond); err != nil {
		return err
	}
	if err := b.liveFolded(ctx, p, folds, r); err != nil {
		return err
	}
	for _, in := range folds {
		if err := in.stop(); err != nil {
			return err
		}
	}
	if r.Stats, err = stopSimulator(p); err != nil {
		return err
	}
	r.DiskStreams, r.DiskRest = b.diskUsage()
	return nil
}

// liveAlone measures the cost of storing the messages.
func (b *bench) liveAlone(ctx context.Context, p *cluster.Process, to *liveSpan) error {
	before, err := b.read(p)
	if err != nil {
		return err
	}
	begin, _, err := b.stored(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(cluster.Sleep(ctx, b.liveSpan), cluster.CheckRunning(p)); err != nil {
		return err
	}
	after, err := b.read(p)
	if err != nil {
		return err
	}
	end, _, err := b.stored(ctx)
	*to = liveSpan{use: before.until(after)}
	to.MessagesPerSecond = float64(end-begin) / to.Seconds
	to.Limit = b.limit(&to.use, "the simulator", [][]int{b.simulatorCPUs})
	return err
}

// caughtUp waits up to a minute until the folds lag by less than a second.
func (b *bench) caughtUp(ctx context.Context, folds []*instances, perSecond float64) (bool, error) {
	for deadline := time.Now().Add(time.Minute); ; {
		behind, unread := 0.0, false
		for _, in := range folds {
			s, err := b.sample(in)
			unread = unread || err != nil || s.sum.batches == 0
			behind += s.sum.lag
		}
		if !unread && behind < perSecond {
			return true, cluster.Sleep(ctx, settle)
		}
		if time.Now().After(deadline) {
			b.Say("the folds do not catch up with the hosts: they lag by %.0f messages", behind)
			return false, nil
		}
		if err := cluster.Sleep(ctx, sampleWait); err != nil {
			return false, err
		}
	}
}

// liveFolded measures the cost with consumers.
func (b *bench) liveFolded(ctx context.Context, p *cluster.Process, folds []*instances, r *liveResult) error {
	processes := []*cluster.Process{p}
	each := [][]int{b.simulatorCPUs}
	for _, in := range folds {
		processes = append(processes, in.processes...)
		each = append(each, in.processes[0].CPUs)
	}
	begin, err := b.liveSamples(folds)
	if err != nil {
		return err
	}
	before, err := b.read(processes...)
	if err != nil {
		return err
	}
	messages, _, err := b.stored(ctx)
	if err != nil {
		return err
	}
	r.Folds = make([]liveFold, len(folds))
	end := begin
	for until := time.Now().Add(b.liveSpan); time.Now().Before(until); {
		if err := errors.Join(cluster.Sleep(ctx, sampleWait), cluster.CheckRunning(processes...)); err != nil {
			return err
		}
		if end, err = b.liveSamples(folds); err != nil {
			return err
		}
		for i := range end {
			r.Folds[i].MostLag = max(r.Folds[i].MostLag, end[i].sum.lag)
		}
	}
	after, err := b.read(processes...)
	if err != nil {
		return err
	}
	now, _, err := b.stored(ctx)
	r.Folded = liveSpan{use: before.until(after)}
	r.Folded.MessagesPerSecond = float64(now-messages) / r.Folded.Seconds
	r.Folded.Limit = b.limit(&r.Folded.use, "simulator and instances", each)
	for i := range folds {
		f := &r.Folds[i]
		f.Fold, f.CPU = b.folds[i], r.Folded.CPU[1+i]
		f.MessagesPerSecond = (end[i].sum.batches - begin[i].sum.batches) / r.Folded.Seconds
		f.EventsPerSecond = (end[i].sum.events - begin[i].sum.events) / r.Folded.Seconds
		f.Resident = after.processes[1+i].Resident
	}
	return err
}

func (b *bench) liveSamples(folds []*instances) (list []sample, err error) {
	for _, in := range folds {
		s, err := b.sample(in)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}
