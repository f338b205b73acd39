// Command outage makes NATS unreachable from a host for a long time and restarts the host meanwhile, in one repeatable
// run.
//
// The host is a virtual machine in qemu with its own Linux, a disk and gputap-producer, whose outbox is on that disk.
// Programs call the stub driver all the time. Outside run nats-server and gputap-leak. nats-server is killed and comes
// back with the same store. In the middle of the outage the host reboots, or loses its power with -power-cut.
//
// The truth is the stub's count of each program's calls, and the time of each program by the host's clock. The guest
// sends both to this machine at once, so that no power cut loses them. A run fails if the stream does not hold each of
// these calls exactly once, with a time at which its program ran.
//
// This program is also the init process of the guest.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// options of a run.
type options struct {
	duration time.Duration
	powerCut bool
}

func main() {
	if os.Getpid() == 1 {
		initMain()
		return
	}
	var o options
	flag.DurationVar(&o.duration, "duration", 20*time.Minute,
		"how long NATS is unreachable; at least 2m, because a boot takes a while")
	flag.BoolVar(&o.powerCut, "power-cut", false, "the host loses its power instead of rebooting")
	flag.Parse()
	cluster.Main("outage", func(ctx context.Context) error { return run(ctx, o) })
}

const (
	bootLimit   = 10 * time.Minute // qemu emulates each instruction, on a busy machine
	drainLimit  = 10 * time.Minute
	around      = 10 * time.Second // how long programs run before and after the outage
	mostPending = 4                // batches that may wait for an ack at any time: one of each kind
	streamBytes = 4 << 30
)

// fleet is what runs outside the guest, and the guest.
type fleet struct {
	*cluster.Workspace
	options
	nats  *cluster.Node
	leak  *cluster.Process
	js    jetstream.JetStream
	guest *machine
	times times
	fail  context.CancelCauseFunc
}

// times are when things happened, by the clock of this machine.
type times struct{ down, reboot, up time.Time }

func run(ctx context.Context, o options) (err error) {
	w, err := cluster.NewWorkspace("", "outage", os.Stdout)
	if err != nil {
		return err
	}
	running, fail := context.WithCancelCause(ctx)
	f := &fleet{Workspace: w, options: o, fail: fail}
	defer func() { f.Close(err != nil && ctx.Err() == nil) }()
	f.Say("NATS unreachable for %s, %s in the middle", o.duration, o.interruption())
	for _, step := range []func(context.Context) error{f.start, f.outage, f.verify} {
		if err := step(running); err != nil {
			return err
		}
	}
	return nil
}

func (o options) interruption() string {
	if o.powerCut {
		return "power cut"
	}
	return "reboot"
}

// start builds the programs and starts nats-server, gputap-leak and the guest.
func (f *fleet) start(ctx context.Context) error {
	if err := cluster.Build(ctx, ".", f.Bin); err != nil {
		return err
	}
	nodes, err := f.Nodes(1, "8GB")
	if err != nil {
		return err
	}
	f.nats = nodes[0]
	url := cluster.URLs(nodes)
	if f.js, err = f.StartNodes(ctx, nodes, 1, streamBytes); err != nil {
		return err
	}
	f.leak = &cluster.Process{Name: "gputap-leak", Args: []string{
		f.Program("gputap-leak"), "--nats.url", url, "--metrics.addr", "", "--display-interval", "0",
		"--log.format", "text", "--consumer.checkpoint", "5s",
	}}
	if err := f.Start(f.leak); err != nil {
		return err
	}
	if f.guest, err = newMachine(f.Workspace, url, f.fail); err != nil {
		return err
	}
	return f.Start(&f.guest.Process)
}

// outage runs the whole outage: from before it until the host has published everything and has shut down.
func (f *fleet) outage(ctx context.Context) error {
	m := f.guest
	if err := f.programsRun(ctx, 1); err != nil {
		return err
	}
	f.nats.Kill()
	f.times.down = time.Now()
	f.Say("nats-server is killed")
	if err := cluster.Sleep(ctx, f.duration/2); err != nil {
		return err
	}
	f.times.reboot = time.Now()
	f.Say("%s", f.interruption())
	if err := f.interrupt(ctx); err != nil {
		return err
	}
	f.Say("the host runs again after %.0f s", time.Since(f.times.reboot).Seconds())
	if err := cluster.Sleep(ctx, time.Until(f.times.down.Add(f.duration))); err != nil {
		return err
	}
	f.times.up = time.Now()
	f.Say("nats-server starts again")
	if err := f.nats.Start(); err != nil {
		return err
	}
	if err := m.until(ctx, drainLimit, "the outbox is not empty", func() bool {
		return m.outboxAt.After(f.times.up) && m.outbox <= mostPending
	}); err != nil {
		return err
	}
	f.Say("the outbox is empty")
	if err := cluster.Sleep(ctx, around); err != nil {
		return err
	}
	return m.shutDown(ctx)
}

// interrupt reboots the host, or cuts its power and starts it again.
func (f *fleet) interrupt(ctx context.Context) error {
	if f.powerCut {
		f.guest.Kill()
	} else if err := f.guest.shutDown(ctx); err != nil {
		return err
	}
	if err := f.guest.Start(); err != nil {
		return err
	}
	return f.programsRun(ctx, 2)
}

// programsRun returns when programs have run for a while in the n-th boot.
func (f *fleet) programsRun(ctx context.Context, n int) error {
	started := func() bool { return len(f.guest.boots) == n }
	if err := f.guest.until(ctx, bootLimit, fmt.Sprintf("no program runs in boot %d", n), started); err != nil {
		return err
	}
	return cluster.Sleep(ctx, around)
}
