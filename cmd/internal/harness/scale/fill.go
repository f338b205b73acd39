package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/table"
	"github.com/gputap/gputap/cmd/internal/simulate"
)

const drain = 2 * time.Minute

// startSimulator starts gputap simulate.
func (b *bench) startSimulator(name string, rate float64, age time.Duration) (*cluster.Process, error) {
	connections := 4 * max(len(b.simulatorCPUs), 1)
	p := &cluster.Process{Name: name, CPUs: b.simulatorCPUs, Out: b.Path(name + ".json"), Args: []string{
		b.Program("gputap"), "simulate", "--nats.url", b.urls(), "--hosts", strconv.Itoa(hosts), "--cluster", name,
		"--connections", strconv.Itoa(connections), "--events-per-second", strconv.FormatFloat(rate, 'f', -1, 64),
		"--batch-age", age.String(), "--drain", drain.String(), "-o", "json",
	}}
	return p, b.Start(p)
}

// stopSimulator stops a simulator and reads its statistics.
func stopSimulator(ctx context.Context, p *cluster.Process) (s simulate.Stats, err error) {
	if err := p.Stop(syscall.SIGINT, drain+time.Minute); err != nil {
		return s, err
	}
	if err := p.Result(ctx, &s); err != nil {
		return s, err
	}
	if s.AckedBatches == 0 {
		return s, fmt.Errorf("%s stored nothing: see %s", p.Name, p.Log())
	}
	return s, nil
}

// fill stores the events of the fill phase.
func (b *bench) fill(ctx context.Context) error {
	size, err := b.warmUp(ctx)
	if err != nil {
		return err
	}
	begin, err := b.stored(ctx)
	if err != nil {
		return err
	}
	b.Say("fill with %.0f M events", b.events/1e6)
	p, err := b.startSimulator("fill", b.fillRate, b.fillAge)
	if err != nil {
		return err
	}
	var stats simulate.Stats
	u, err := b.using(func() (err error) {
		for now := begin; (now-begin)*size < b.events; {
			if err := errors.Join(cluster.Sleep(ctx, 200*time.Millisecond), cluster.CheckRunning(p)); err != nil {
				return err
			}
			if now, err = b.stored(ctx); err != nil {
				return err
			}
		}
		stats, err = stopSimulator(ctx, p)
		return err
	}, p)
	if err != nil {
		return err
	}
	b.printFill(&u, &stats)
	return nil
}

// warmUp runs everything once, returns how many events a batch has, and purges the stored messages.
func (b *bench) warmUp(ctx context.Context) (eventsOfBatch float64, err error) {
	b.Say("warm up")
	p, err := b.startSimulator("warm", b.fillRate, b.fillAge)
	if err != nil {
		return 0, err
	}
	if err := cluster.Sleep(ctx, 3*time.Second); err != nil {
		return 0, err
	}
	stats, err := stopSimulator(ctx, p)
	if err != nil {
		return 0, err
	}
	return float64(stats.AckedEvents) / float64(stats.AckedBatches), b.purge(ctx, true)
}

func (b *bench) printFill(u *use, s *simulate.Stats) {
	events, batches, bytes := float64(s.AckedEvents), float64(s.AckedBatches), float64(s.AckedBytes)
	table.Head(fmt.Sprintf("Fill, %d hosts", hosts), "what", "measured")
	row := func(what, format string, v ...any) { table.Row(what, fmt.Sprintf(format, v...)) }
	row("stored", "%.0f M events, %.2f GB, in %.1f s", events/1e6, bytes/1e9, s.Seconds)
	row("events/s", "%.2f M", events/s.Seconds/1e6)
	row("batches/s; events and bytes of one", "%.0f; %.0f, %.0f", batches/s.Seconds, events/batches, bytes/batches)
	row("MB/s from the hosts; into the nodes; out of them", "%.0f; %.0f; %.0f",
		bytes/s.Seconds/1e6, u.in/s.Seconds/1e6, u.out/s.Seconds/1e6)
	row("CPU s per million events: nodes together, simulator", "%.3f, %.3f",
		u.nodesCPU/events*1e6, u.processesCPU/events*1e6)
	row("CPU µs per batch: nodes together, simulator", "%.0f, %.0f",
		u.nodesCPU/batches*1e6, u.processesCPU/batches*1e6)
	row("CPU usage of each node; of the simulator; machine idle", "%s; %s; %s",
		b.nodesBusy(u), percent(busy(u.processesCPU, u.seconds, b.simulatorCPUs)), percent(u.idle))
	row("bytes on disk per byte stored, one replica, Raft included", "%.2f", b.diskUsage()/nodes/bytes)
	row("bytes written to disk per byte stored, one replica", "%.2f", u.written/nodes/bytes)
}
