package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// disturb disturbs the fleet for f.duration. Disturbances do not overlap, so that the seed determines all of them; each
// is undone after a while.
func (f *fleet) disturb(ctx context.Context) error {
	if err := cluster.Sleep(ctx, 5*time.Second); err != nil {
		return err
	}
	if !f.killsOnly {
		if err := f.disturbCertain(ctx); err != nil {
			return err
		}
	}
	if err := f.waitForAlerts(ctx); err != nil {
		return err
	}
	began, plan := time.Now(), f.plan()
	for time.Since(began) < f.duration || len(plan) > 0 {
		if err := cluster.CheckRunning(f.processes()...); err != nil {
			return err
		}
		next := f.disturbOnce
		if len(plan) > 0 && time.Since(began) > plan[0].after {
			next, plan = plan[0].do, plan[1:]
		}
		pause := time.Duration(500+f.random.IntN(2500)) * time.Millisecond
		if err := errors.Join(next(ctx), cluster.Sleep(ctx, pause)); err != nil {
			return err
		}
	}
	return nil
}

// mostDelayedCommits limits how many commits are delayed until one comes from a fenced instance: a delayed commit may
// belong to a shard without hosts, or be a claim.
const mostDelayedCommits = 5

// disturbCertain does what every run must exercise: a fenced instance tries to commit, and one fold has no instance for
// a moment.
func (f *fleet) disturbCertain(ctx context.Context) error {
	for range mostDelayedCommits {
		if err := f.delayCommit(ctx); err != nil {
			return err
		}
		if f.commits.now().fenced > 0 {
			break
		}
	}
	for _, p := range f.consumers[:instances] {
		if err := f.kill(ctx, p, 0); err != nil {
			return err
		}
	}
	return nil
}

// planned is a disturbance that is due some time after the first one.
type planned struct {
	after time.Duration
	do    func(context.Context) error
}

// plan returns the disturbances that happen once: a restart of the cluster, and the upgrade of each program.
func (f *fleet) plan() (list []planned) {
	if !f.killsOnly {
		list = append(list, planned{f.duration / 2, func(ctx context.Context) error {
			err := f.restartNodes(ctx, "restart all nodes", f.nodes, 3*time.Second)
			return errors.Join(err, f.kill(ctx, f.simulators[0], 0)) // so that every run has repeated batches
		}})
	}
	if f.from != "" {
		old := slices.Concat(f.consumers, f.simulators)
		for i, p := range old {
			after := f.duration/4 + f.duration/2*time.Duration(i)/time.Duration(len(old))
			list = append(list, planned{after, func(ctx context.Context) error { return f.upgrade(ctx, p) }})
		}
	}
	slices.SortStableFunc(list, func(a, b planned) int { return cmp.Compare(a.after, b.after) })
	return list
}

// takeoverTime is longer than other instances need to take over a shard.
const takeoverTime = 20 * time.Second

// disturbOnce does one thing at random.
func (f *fleet) disturbOnce(ctx context.Context) error {
	consumer := f.consumers[f.random.IntN(len(f.consumers))]
	if f.killsOnly {
		return f.kill(ctx, consumer, takeoverTime)
	}
	simulator := f.simulators[f.random.IntN(len(f.simulators))]
	node := f.random.IntN(nodes)
	wait := time.Duration(f.random.IntN(8000)) * time.Millisecond
	switch n := f.random.IntN(100); {
	case n < 35:
		return f.kill(ctx, consumer, wait/4)
	case n < 50:
		return f.pause(ctx, consumer, 15*time.Second)
	case n < 58:
		f.note("stop and start", consumer.Name)
		return errors.Join(consumer.Stop(syscall.SIGTERM, time.Minute), consumer.Start())
	case n < 72:
		return f.restartNodes(ctx, "kill node", f.nodes[node:node+1], wait)
	case n < 84:
		f.note("cut connections", f.nodes[node].Name)
		f.proxies[node].cut()
		defer f.proxies[node].connect()
		return cluster.Sleep(ctx, wait/2)
	case n < 90:
		return f.kill(ctx, simulator, wait/4)
	case n < 96:
		return f.pause(ctx, simulator, 3*time.Second)
	default:
		return f.fillDisk(ctx)
	}
}

// note prints and counts a disturbance.
func (f *fleet) note(what, who string) {
	f.Say("%s %s", what, who)
	f.did[what]++
}

// kill sends SIGKILL to a consumer or simulator and starts it again after a while.
func (f *fleet) kill(ctx context.Context, p *cluster.Process, after time.Duration) error {
	if slices.Contains(f.consumers, p) {
		f.note("kill consumer", p.Name)
		f.kills = append(f.kills, shardEvent{process: p.Name, what: killed, at: time.Now()})
	} else {
		f.note("kill simulator", p.Name)
	}
	p.Kill()
	return errors.Join(cluster.Sleep(ctx, after), f.restart(ctx, p))
}

// restart starts a consumer, or a simulator until it logs batches: it publishes again what may not have been stored,
// and ends at once if NATS is unreachable.
func (f *fleet) restart(ctx context.Context, p *cluster.Process) error {
	simulator := slices.Index(f.simulators, p)
	if simulator < 0 {
		return p.Start()
	}
	before, err := os.Stat(f.truthLog(simulator))
	if err != nil {
		return err
	}
	return cluster.Until(ctx, 2*time.Minute, func() error {
		now, err := os.Stat(f.truthLog(simulator))
		if err != nil || now.Size() > before.Size() {
			return err
		}
		if !p.Running() {
			err = p.Start()
		}
		return errors.Join(fmt.Errorf("%s logs no batches: see %s", p.Name, p.Log()), err)
	})
}

// pause stops a process with SIGSTOP for a while.
func (f *fleet) pause(ctx context.Context, p *cluster.Process, d time.Duration) error {
	f.note(fmt.Sprintf("pause %.0f s", d.Seconds()), p.Name)
	p.Signal(syscall.SIGSTOP)
	defer p.Signal(syscall.SIGCONT)
	return cluster.Sleep(ctx, d)
}

// upgrade replaces the program of a process: a consumer stops in order, a simulator is killed.
func (f *fleet) upgrade(ctx context.Context, p *cluster.Process) error {
	f.note("upgrade", p.Name)
	p.Args[0] = f.Program(filepath.Base(p.Args[0]))
	if slices.Contains(f.simulators, p) {
		p.Kill()
	} else if err := p.Stop(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	return f.restart(ctx, p)
}

// restartNodes kills nodes and starts them again after a while.
func (f *fleet) restartNodes(ctx context.Context, what string, list []*cluster.Process, after time.Duration) error {
	f.note(what, list[0].Name)
	for _, n := range list {
		n.Kill()
	}
	err := cluster.Sleep(ctx, after)
	for _, n := range list {
		err = errors.Join(err, n.Start())
	}
	return err
}

// fillDisk fills the disk of the last node for a while. Then the node is restarted, as its operator would do.
func (f *fleet) fillDisk(ctx context.Context) error {
	if f.tmpfs == "" {
		f.note("no disk to fill: mounting a tmpfs needs root", "")
		return nil
	}
	node := f.nodes[nodes-1]
	f.note("fill the disk", node.Name)
	path := filepath.Join(f.tmpfs, "full")
	_ = exec.CommandContext(ctx, "dd", "if=/dev/zero", "of="+path, "bs=1M").Run() // ends when the disk is full
	err := cluster.Sleep(ctx, 5*time.Second)
	node.Kill()
	return errors.Join(err, os.Remove(path), node.Start())
}
