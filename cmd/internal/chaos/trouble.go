package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/cluster"
)

// trouble hurts the fleet until its time is over. One thing is done after the other, so that a seed says all of it; what
// it did is undone a while later.
func (f *fleet) trouble(ctx context.Context) error {
	began := time.Now()
	end, restartAt := began.Add(f.duration), began.Add(f.duration/2)
	var old []*cluster.Process
	if f.from != "" {
		old = slices.Concat(f.consumers, f.simulators)
	}
	if f.killsOnly {
		restartAt = time.Time{}
	}
	every := f.duration / 2 / time.Duration(max(1, len(old)))
	upgradeAt := began.Add(f.duration / 4)
	if !f.pause(ctx, 5*time.Second) {
		return ctx.Err()
	}
	for time.Now().Before(end) && ctx.Err() == nil {
		if !restartAt.IsZero() && time.Now().After(restartAt) {
			restartAt = time.Time{}
			if err := f.restartCluster(ctx); err != nil {
				return err
			}
		}
		if len(old) > 0 && time.Now().After(upgradeAt) {
			if err := f.upgrade(ctx, old[0]); err != nil {
				return err
			}
			old, upgradeAt = old[1:], upgradeAt.Add(every)
			continue
		}
		if err := f.one(ctx); err != nil {
			return err
		}
		f.pause(ctx, time.Duration(500+f.random.IntN(2500))*time.Millisecond)
	}
	if len(old) > 0 {
		return fmt.Errorf("%d programs are still old ones: more time is needed", len(old))
	}
	return ctx.Err()
}

// upgrade replaces a process's program: a consumer ends in order, a simulator does not.
func (f *fleet) upgrade(ctx context.Context, p *cluster.Process) error {
	f.note("upgrade", p.Name)
	p.Args[0] = f.program(filepath.Base(p.Args[0]))
	if slices.Contains(f.simulators, p) {
		p.Kill()
		return f.startAgain(ctx, p)
	}
	if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	return p.Start()
}

func (f *fleet) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// one does one thing.
func (f *fleet) one(ctx context.Context) error {
	consumer := f.consumers[f.random.IntN(len(f.consumers))]
	if f.killsOnly {
		return f.kill(ctx, consumer, leftDead)
	}
	simulator := f.simulators[f.random.IntN(len(f.simulators))]
	node := f.random.IntN(nodes)
	wait := time.Duration(f.random.IntN(8000)) * time.Millisecond
	switch n := f.random.IntN(100); {
	case n < 35:
		return f.kill(ctx, consumer, wait/4)
	case n < 50:
		f.note("pause 15 s", consumer.Name)
		consumer.Signal(syscall.SIGSTOP)
		f.pause(ctx, 15*time.Second)
		consumer.Signal(syscall.SIGCONT)
	case n < 58:
		f.note("stop and start", consumer.Name)
		if err := consumer.End(syscall.SIGTERM, time.Minute); err != nil {
			return err
		}
		return consumer.Start()
	case n < 72:
		f.note("kill", f.nodes[node].Name)
		f.nodes[node].Kill()
		f.pause(ctx, wait)
		return f.nodes[node].Start()
	case n < 84:
		f.note("cut connections", f.nodes[node].Name)
		f.proxies[node].sever()
		f.pause(ctx, wait/2)
		f.proxies[node].heal()
	case n < 90:
		f.note("kill", simulator.Name)
		simulator.Kill()
		f.pause(ctx, wait/4)
		return f.startAgain(ctx, simulator)
	case n < 96:
		f.note("pause 3 s", simulator.Name)
		simulator.Signal(syscall.SIGSTOP)
		f.pause(ctx, 3*time.Second)
		simulator.Signal(syscall.SIGCONT)
	default:
		return f.fillDisk(ctx)
	}
	return nil
}

// leftDead is long enough for others to have taken over.
const leftDead = 20 * time.Second

// kill ends a consumer at once and starts it again after a while.
func (f *fleet) kill(ctx context.Context, consumer *cluster.Process, after time.Duration) error {
	f.note("kill", consumer.Name)
	f.kills = append(f.kills, kill{consumer.Name, time.Now()})
	consumer.Kill()
	f.pause(ctx, after)
	return consumer.Start()
}

// begins is how long a simulator takes to begin, or to find that there is no bus to begin with: it ends then.
const begins = 8 * time.Second

// startAgain starts a simulator until it has begun.
func (f *fleet) startAgain(ctx context.Context, simulator *cluster.Process) error {
	for range 20 {
		if err := simulator.Start(); err != nil {
			return err
		}
		for deadline := time.Now().Add(begins); simulator.Running(); {
			if time.Now().After(deadline) {
				return nil
			}
			if !f.pause(ctx, 200*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("%s does not start: see its log", simulator.Name)
}

func (f *fleet) note(what, who string) {
	f.say("%s %s", what, who)
	f.did[what]++
}

// fillDisk leaves the last node no room for a while. It is started anew then, as its operator would.
func (f *fleet) fillDisk(ctx context.Context) error {
	if f.tmpfs == "" {
		return nil
	}
	node := f.nodes[nodes-1]
	f.note("fill the disk", node.Name)
	path := filepath.Join(f.tmpfs, "full")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = file.Write(block)
	}
	_ = file.Close()
	f.pause(ctx, 5*time.Second)
	node.Kill()
	if err := os.Remove(path); err != nil {
		return err
	}
	return node.Start()
}

// restartCluster takes all nodes away at once: nothing is there for a moment.
func (f *fleet) restartCluster(ctx context.Context) error {
	f.note("restart all nodes", "")
	for _, n := range f.nodes {
		n.Kill()
	}
	f.pause(ctx, 3*time.Second)
	for _, n := range f.nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}
