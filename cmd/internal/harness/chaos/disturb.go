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

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// trouble hurts the fleet until its time is over. One thing is done after the other, so that a seed says all of it; what
// it did is undone a while later.
func (f *fleet) trouble(ctx context.Context) error {
	if !f.pause(ctx, 5*time.Second) {
		return ctx.Err()
	}
	if !f.killsOnly {
		if err := f.certain(ctx); err != nil {
			return err
		}
	}
	began, before := time.Now(), f.fence.committed()
	until, restartAt := began.Add(f.duration), began.Add(f.duration/2)
	var old []*cluster.Process
	if f.from != "" {
		old = slices.Concat(f.consumers, f.simulators)
	}
	if f.killsOnly {
		restartAt = time.Time{}
	}
	every := f.duration / 2 / time.Duration(max(1, len(old)))
	upgradeAt := began.Add(f.duration / 4)
	for (time.Now().Before(until) || !restartAt.IsZero()) && ctx.Err() == nil {
		if !restartAt.IsZero() && time.Now().After(restartAt) {
			restartAt = time.Time{}
			if err := f.restartCluster(ctx); err != nil {
				return err
			}
			if err := f.killSimulator(ctx, f.simulators[0], 0); err != nil { // so that no run is without repeated batches
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
	return errors.Join(ctx.Err(), f.wentOn(before))
}

// holds is how often a commit is held back until one comes too late: what is held may be of a shard without hosts, or a claim.
const holds = 5

// certain does what a run may not leave to chance, before the time of trouble begins: a zombie commits, and a fold is without
// any instance for a moment.
func (f *fleet) certain(ctx context.Context) error {
	for range holds {
		if err := f.holdCommit(ctx); err != nil {
			return err
		}
		if _, late := f.fence.counts(); late > 0 {
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

// wentOn is nil when each fold committed more during the trouble, which never hurt all of its instances for long. A short
// trouble may be over before a commit is due.
func (f *fleet) wentOn(before map[string]uint64) error {
	after := f.fence.committed()
	for _, fold := range consumers {
		if f.duration >= time.Minute && after[fold] <= before[fold] {
			return fmt.Errorf("%s committed nothing in %s of trouble", fold, f.duration)
		}
	}
	return nil
}

// alive is nil when a process that is to be hurt is there to be hurt.
func alive(p *cluster.Process) error {
	if !p.Running() {
		return fmt.Errorf("%s has ended by itself: %w: %s", p.Name, p.Err(), lastWords(p))
	}
	return nil
}

// lastWords are what a process that crashed said, and where it did.
func lastWords(p *cluster.Process) string {
	text, _ := os.ReadFile(p.Log())
	if said := crash.FindAll(text, -1); len(said) > 0 {
		return fmt.Sprintf("%s (%s)", said[len(said)-1], p.Log())
	}
	return "see " + p.Log()
}

// end has a consumer stop in order.
func end(p *cluster.Process) error {
	if err := alive(p); err != nil {
		return err
	}
	if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	if p.Err() != nil {
		return fmt.Errorf("%s was asked to end: %w: %s", p.Name, p.Err(), lastWords(p))
	}
	return nil
}

// freeze stops a process for a while.
func (f *fleet) freeze(ctx context.Context, p *cluster.Process, d time.Duration) error {
	if err := alive(p); err != nil {
		return err
	}
	f.note(fmt.Sprintf("pause %.0f s", d.Seconds()), p.Name)
	p.Signal(syscall.SIGSTOP)
	f.pause(ctx, d)
	p.Signal(syscall.SIGCONT)
	return nil
}

// upgrade replaces a process's program: a consumer ends in order, a simulator does not.
func (f *fleet) upgrade(ctx context.Context, p *cluster.Process) error {
	f.note("upgrade", p.Name)
	p.Args[0] = f.program(filepath.Base(p.Args[0]))
	if slices.Contains(f.simulators, p) {
		p.Kill()
		return f.startAgain(ctx, p)
	}
	if err := end(p); err != nil {
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
		return f.freeze(ctx, consumer, 15*time.Second)
	case n < 58:
		f.note("stop and start", consumer.Name)
		if err := end(consumer); err != nil {
			return err
		}
		return consumer.Start()
	case n < 72:
		if err := alive(f.nodes[node]); err != nil {
			return err
		}
		f.note("kill node", f.nodes[node].Name)
		f.nodes[node].Kill()
		f.pause(ctx, wait)
		return f.nodes[node].Start()
	case n < 84:
		f.note("cut connections", f.nodes[node].Name)
		f.proxies[node].sever()
		f.pause(ctx, wait/2)
		f.proxies[node].heal()
	case n < 90:
		return f.killSimulator(ctx, simulator, wait/4)
	case n < 96:
		return f.freeze(ctx, simulator, 3*time.Second)
	default:
		return f.fillDisk(ctx)
	}
	return nil
}

// leftDead is long enough for others to have taken over.
const leftDead = 20 * time.Second

// kill ends a consumer at once and starts it again after a while.
func (f *fleet) kill(ctx context.Context, consumer *cluster.Process, after time.Duration) error {
	if err := alive(consumer); err != nil {
		return err
	}
	f.note("kill consumer", consumer.Name)
	f.kills = append(f.kills, kill{consumer.Name, time.Now()})
	consumer.Kill()
	f.pause(ctx, after)
	return consumer.Start()
}

// killSimulator ends a simulator at once and starts it again after a while: it publishes again what may not have been stored.
func (f *fleet) killSimulator(ctx context.Context, simulator *cluster.Process, after time.Duration) error {
	if err := alive(simulator); err != nil {
		return err
	}
	f.note("kill simulator", simulator.Name)
	simulator.Kill()
	f.pause(ctx, after)
	return f.startAgain(ctx, simulator)
}

// startAgain starts a simulator until it has begun: it ends where it finds no bus to begin with, and logs batches where it does.
func (f *fleet) startAgain(ctx context.Context, simulator *cluster.Process) error {
	log := f.logOf(slices.Index(f.simulators, simulator))
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
			if !f.pause(ctx, 200*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("%s does not start: %s", simulator.Name, lastWords(simulator))
}

func (f *fleet) note(what, who string) {
	f.say("%s %s", what, who)
	f.did[what]++
}

// fillDisk leaves the last node no room for a while. It is started anew then, as its operator would.
func (f *fleet) fillDisk(ctx context.Context) error {
	if f.tmpfs == "" {
		f.note("no disk to fill: that needs root", "")
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
		if err := alive(n); err != nil {
			return err
		}
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
