package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/simulate"
)

const (
	liveAge = 50 * time.Millisecond
	drain   = 2 * time.Minute
)

// simulator is gputap simulate.
func (b *bench) simulator(name string, rate float64, age, duration time.Duration) *cluster.Process {
	connections := 4 * max(len(b.simulatorCPUs), 1)
	return &cluster.Process{Name: name, CPUs: b.simulatorCPUs, Out: filepath.Join(b.dir, name+".json"), Args: []string{
		b.program("gputap"), "simulate", "--nats.url", b.urls(), "--hosts", strconv.Itoa(b.hosts), "--cluster", name, "--connections", strconv.Itoa(connections),
		"--events-per-second", strconv.FormatFloat(rate, 'f', -1, 64), "--batch-age", age.String(), "--duration", duration.String(),
		"--drain", drain.String(), "-o", "json",
	}}
}

// simulated ends a simulator and reads what it says.
func simulated(p *cluster.Process) (s simulate.Stats, err error) {
	if err := p.End(syscall.SIGINT, drain+time.Minute); err != nil {
		return s, err
	}
	if p.Err() != nil {
		return s, fmt.Errorf("%s: %w: see its last lines:\n%s", p.Name, p.Err(), lastLines(p.Log()))
	}
	text, err := os.ReadFile(p.Out)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("what %s says: %w", p.Name, err)
	}
	return s, nil
}

// fill stores the events.
func (b *bench) fill(ctx context.Context) error {
	size, err := b.warmUp(ctx)
	if err != nil {
		return err
	}
	begin, first, err := b.stored(ctx)
	if err != nil {
		return err
	}
	b.say("fill with %.0f M events", b.events/1e6)
	p := b.simulator("fill", b.fillRate, b.fillAge, 24*time.Hour)
	before, err := b.read()
	if err != nil {
		return err
	}
	if err := b.start(p); err != nil {
		return err
	}
	for now := begin; float64(now-begin)*size < b.events; {
		if err := errors.Join(wait(ctx, 200*time.Millisecond), checkRunning(p)); err != nil {
			return err
		}
		if now, _, err = b.stored(ctx); err != nil {
			return err
		}
	}
	stats, err := simulated(p)
	if err != nil {
		return err
	}
	after, err := b.read(p)
	if err != nil {
		return err
	}
	_, last, err := b.stored(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(first, last) {
		return errors.New("streams have let go of their beginnings: take fewer events")
	}
	u := before.until(after)
	f := &b.result.Fill
	*f = fillResult{use: u, Stats: stats, Limit: b.limit(&u, "the simulator", [][]int{b.simulatorCPUs})}
	f.DiskStreams, f.DiskRest = b.onDisk()
	b.say("stored %.1f M events/s", stats.Rate/1e6)
	return nil
}

// warmUp has everything run once, tells how many events a batch has, and takes what it stored away.
func (b *bench) warmUp(ctx context.Context) (eventsOfBatch float64, err error) {
	b.say("warm up")
	p := b.simulator("warm", b.fillRate, b.fillAge, 24*time.Hour)
	if err := b.start(p); err != nil {
		return 0, err
	}
	if err := wait(ctx, 3*time.Second); err != nil {
		return 0, err
	}
	stats, err := simulated(p)
	if err == nil && stats.AckedBatches == 0 {
		err = errors.New("nothing was stored within three seconds")
	}
	if err != nil {
		return 0, err
	}
	return float64(stats.AckedEvents) / float64(stats.AckedBatches), b.purge(ctx, true)
}
