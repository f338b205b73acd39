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

// simulator returns a process of gputap simulate.
func (b *bench) simulator(name string, rate float64, age, duration time.Duration) *cluster.Process {
	connections := 4 * max(len(b.simulatorCPUs), 1)
	return &cluster.Process{Name: name, CPUs: b.simulatorCPUs, Out: filepath.Join(b.dir, name+".json"), Args: []string{
		b.Program("gputap"), "simulate", "--nats.url", b.urls(), "--hosts", strconv.Itoa(b.hosts), "--cluster", name,
		"--connections", strconv.Itoa(connections), "--events-per-second", strconv.FormatFloat(rate, 'f', -1, 64),
		"--batch-age", age.String(), "--duration", duration.String(), "--drain", drain.String(), "-o", "json",
	}}
}

// stopSimulator stops a simulator and reads its statistics.
func stopSimulator(p *cluster.Process) (s simulate.Stats, err error) {
	if err := p.Stop(syscall.SIGINT, drain+time.Minute); err != nil {
		return s, err
	}
	text, err := os.ReadFile(p.Out)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the statistics of %s: %w", p.Name, err)
	}
	return s, nil
}

// fill stores the events of the fill phase.
func (b *bench) fill(ctx context.Context) error {
	size, err := b.warmUp(ctx)
	if err != nil {
		return err
	}
	begin, first, err := b.stored(ctx)
	if err != nil {
		return err
	}
	b.Say("fill with %.0f M events", b.events/1e6)
	p := b.simulator("fill", b.fillRate, b.fillAge, 24*time.Hour)
	before, err := b.read()
	if err != nil {
		return err
	}
	if err := b.start(p); err != nil {
		return err
	}
	for now := begin; float64(now-begin)*size < b.events; {
		if err := errors.Join(cluster.Sleep(ctx, 200*time.Millisecond), cluster.CheckRunning(p)); err != nil {
			return err
		}
		if now, _, err = b.stored(ctx); err != nil {
			return err
		}
	}
	stats, err := stopSimulator(p)
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
		return errors.New("streams have removed their first messages: use fewer -events")
	}
	u := before.until(after)
	f := &b.result.Fill
	*f = fillResult{use: u, Stats: stats, Limit: b.limit(&u, "the simulator", [][]int{b.simulatorCPUs})}
	f.DiskStreams, f.DiskRest = b.diskUsage()
	b.Say("stored %.1f M events/s", stats.Rate/1e6)
	return nil
}

// warmUp runs everything once, returns how many events a batch has, and purges the stored messages.
func (b *bench) warmUp(ctx context.Context) (eventsOfBatch float64, err error) {
	b.Say("warm up")
	p := b.simulator("warm", b.fillRate, b.fillAge, 24*time.Hour)
	if err := b.start(p); err != nil {
		return 0, err
	}
	if err := cluster.Sleep(ctx, 3*time.Second); err != nil {
		return 0, err
	}
	stats, err := stopSimulator(p)
	if err == nil && stats.AckedBatches == 0 {
		err = errors.New("nothing was stored within three seconds")
	}
	if err != nil {
		return 0, err
	}
	return float64(stats.AckedEvents) / float64(stats.AckedBatches), b.purge(ctx, true)
}
