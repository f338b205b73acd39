package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/fold"
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
	began, before := time.Now(), f.commits.sequences()
	until, restartAt := began.Add(f.duration), began.Add(f.duration/2)
	if f.killsOnly {
		restartAt = time.Time{}
	}
	var old []*cluster.Process // that must be upgraded
	if f.from != "" {
		old = slices.Concat(f.consumers, f.simulators)
	}
	every := f.duration / 2 / time.Duration(max(1, len(old)))
	upgradeAt := began.Add(f.duration / 4)
	for (time.Now().Before(until) || !restartAt.IsZero()) && ctx.Err() == nil {
		if !restartAt.IsZero() && time.Now().After(restartAt) {
			restartAt = time.Time{}
			if err := f.restartCluster(ctx); err != nil {
				return err
			}
			if err := f.killSimulator(ctx, f.simulators[0], 0); err != nil { // so that every run has repeated batches
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
		if err := f.disturbOnce(ctx); err != nil {
			return err
		}
		_ = cluster.Sleep(ctx, time.Duration(500+f.random.IntN(2500))*time.Millisecond)
	}
	if len(old) > 0 {
		return fmt.Errorf("%d programs were not upgraded in time: use a longer -duration", len(old))
	}
	return errors.Join(ctx.Err(), f.checkProgress(before))
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
		if _, fenced := f.commits.counts(); fenced > 0 {
			break
		}
	}
	for _, p := range f.consumers[:f.instances] {
		if err := f.kill(ctx, p, 0); err != nil {
			return err
		}
	}
	return nil
}

// checkProgress returns an error if a fold committed nothing new while the fleet was disturbed: its instances were
// never all down for long. A run below a minute may end before a commit is due.
func (f *fleet) checkProgress(before map[string]uint64) error {
	after := f.commits.sequences()
	for _, name := range fold.Names() {
		if f.duration >= time.Minute && after[name] <= before[name] {
			return fmt.Errorf("%s committed nothing in %s of disturbances", name, f.duration)
		}
	}
	return nil
}

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
		if err := consumer.Stop(syscall.SIGTERM, time.Minute); err != nil {
			return err
		}
		return consumer.Start()
	case n < 72:
		return f.restartNodes(ctx, "kill node", f.nodes[node:node+1], wait)
	case n < 84:
		f.note("cut connections", f.nodes[node].Name)
		f.proxies[node].cutConnections()
		_ = cluster.Sleep(ctx, wait/2)
		f.proxies[node].acceptConnections()
		return nil
	case n < 90:
		return f.killSimulator(ctx, simulator, wait/4)
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

// takeoverTime is longer than other instances need to take over a shard.
const takeoverTime = 20 * time.Second

// kill sends SIGKILL to a consumer and starts it again after a while.
func (f *fleet) kill(ctx context.Context, consumer *cluster.Process, after time.Duration) error {
	if err := cluster.CheckRunning(consumer); err != nil {
		return err
	}
	f.note("kill consumer", consumer.Name)
	f.kills = append(f.kills, kill{consumer.Name, time.Now()})
	consumer.Kill()
	_ = cluster.Sleep(ctx, after)
	return consumer.Start()
}

// pause stops a process with SIGSTOP for a while.
func (f *fleet) pause(ctx context.Context, p *cluster.Process, d time.Duration) error {
	if err := cluster.CheckRunning(p); err != nil {
		return err
	}
	f.note(fmt.Sprintf("pause %.0f s", d.Seconds()), p.Name)
	p.Signal(syscall.SIGSTOP)
	_ = cluster.Sleep(ctx, d)
	p.Signal(syscall.SIGCONT)
	return nil
}

// upgrade replaces the program of a process: a consumer stops in order, a simulator is killed.
func (f *fleet) upgrade(ctx context.Context, p *cluster.Process) error {
	f.note("upgrade", p.Name)
	p.Args[0] = f.Program(filepath.Base(p.Args[0]))
	if slices.Contains(f.simulators, p) {
		p.Kill()
		return f.restartSimulator(ctx, p)
	}
	if err := p.Stop(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	return p.Start()
}

// restartCluster kills all nodes at once.
func (f *fleet) restartCluster(ctx context.Context) error {
	return f.restartNodes(ctx, "restart all nodes", f.nodes, 3*time.Second)
}

// restartNodes kills nodes and starts them again after a while.
func (f *fleet) restartNodes(ctx context.Context, what string, list []*cluster.Process, after time.Duration) error {
	name := ""
	if len(list) == 1 {
		name = list[0].Name
	}
	f.note(what, name)
	for _, n := range list {
		if err := cluster.CheckRunning(n); err != nil {
			return err
		}
		n.Kill()
	}
	_ = cluster.Sleep(ctx, after)
	for _, n := range list {
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
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
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = file.Write(block)
	}
	_ = file.Close()
	_ = cluster.Sleep(ctx, 5*time.Second)
	node.Kill()
	if err := os.Remove(path); err != nil {
		return err
	}
	return node.Start()
}
