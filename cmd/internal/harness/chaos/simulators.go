package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// killSimulator sends SIGKILL to a simulator and starts it again after a while. It then publishes again what may not
// have been stored.
func (f *fleet) killSimulator(ctx context.Context, simulator *cluster.Process, after time.Duration) error {
	if err := cluster.CheckRunning(simulator); err != nil {
		return err
	}
	f.note("kill simulator", simulator.Name)
	simulator.Kill()
	_ = cluster.Sleep(ctx, after)
	return f.restartSimulator(ctx, simulator)
}

// restartSimulator starts a simulator until it logs batches. A simulator ends at once if NATS is unreachable when it
// starts.
func (f *fleet) restartSimulator(ctx context.Context, simulator *cluster.Process) error {
	log := f.truthLog(slices.Index(f.simulators, simulator))
	for range 20 {
		before, err := os.Stat(log)
		if err == nil {
			err = simulator.Start()
		}
		if err != nil {
			return err
		}
		for simulator.Running() {
			if now, err := os.Stat(log); err != nil || now.Size() > before.Size() {
				return err
			}
			if err := cluster.Sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return errors.Join(fmt.Errorf("%s did not start in 20 attempts", simulator.Name), cluster.CheckRunning(simulator))
}

// finishSimulator ends a simulator once everything is published. One that started a moment ago may still be reading its
// log and fail; it is started again.
func (f *fleet) finishSimulator(ctx context.Context, p *cluster.Process) error {
	for attempt := 1; ; attempt++ {
		if err := p.End(syscall.SIGINT, 2*time.Minute); err != nil {
			return err
		}
		if p.Err() == nil {
			return nil
		}
		if attempt == 3 {
			return fmt.Errorf("%s has not published everything: %w", p.Name, p.Err())
		}
		if err := f.restartSimulator(ctx, p); err != nil {
			return err
		}
		_ = cluster.Sleep(ctx, time.Duration(attempt)*30*time.Second)
	}
}
