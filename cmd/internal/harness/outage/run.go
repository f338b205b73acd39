package main

import (
	"context"
	"os"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

const (
	bootLimit   = 10 * time.Minute // qemu may emulate each instruction, on a busy machine
	drainLimit  = 10 * time.Minute
	afterward   = 10 * time.Second // how long programs run once NATS is back
	mostPending = 4                // batches that may wait for an ack at any time: one of each kind
)

// times are when things happened, by the clock of this machine.
type times struct{ down, reboot, up time.Time }

func run(ctx context.Context, o options) (err error) {
	w, err := cluster.NewWorkspace("", "outage", os.Stdout)
	if err != nil {
		return err
	}
	defer func() { w.Close(err != nil || o.keep) }()
	f, err := newFleet(ctx, w)
	defer f.close()
	if err != nil {
		return err
	}
	m, err := newMachine(ctx, w, o.accel, f.guestURL(), o.rate)
	if err != nil {
		return err
	}
	f.Say("NATS unreachable for %s, %s in the middle, 2 × %d calls/s, qemu with %s", o.duration, o.interruption(),
		o.rate, m.accel)
	if err := m.start(ctx); err != nil {
		return err
	}
	defer m.cutPower()
	t, err := outage(ctx, f, m, o)
	if err != nil {
		return err
	}
	return verify(ctx, f, m, t, o.powerCut)
}

func (o options) interruption() string {
	if o.powerCut {
		return "power cut"
	}
	return "reboot"
}

// outage runs the whole outage: from before it until the host has published everything and has shut down.
func outage(ctx context.Context, f *fleet, m *machine, o options) (t times, err error) {
	if err := m.until(ctx, bootLimit, "a program of the first boot has ended",
		func() bool { return m.endedPrograms() > 0 }); err != nil {
		return t, err
	}
	f.nats.Kill()
	t.down = time.Now()
	f.Say("nats-server is killed")
	if err := sleepUntil(ctx, m, t.down.Add(o.duration/2)); err != nil {
		return t, err
	}
	t.reboot = time.Now()
	f.Say("%s; %s", o.interruption(), m.backlog())
	if err := interrupt(ctx, m, o.powerCut); err != nil {
		return t, err
	}
	f.Say("the host runs again after %.0f s", time.Since(t.reboot).Seconds())
	if err := sleepUntil(ctx, m, t.down.Add(o.duration)); err != nil {
		return t, err
	}
	t.up = time.Now()
	f.Say("nats-server starts again after %.0f s; %s", t.up.Sub(t.down).Seconds(), m.backlog())
	if err := f.nats.Start(); err != nil {
		return t, err
	}
	if err := m.until(ctx, drainLimit, "the outbox is empty", func() bool {
		return m.outboxAt.After(t.up) && m.outbox.Batches <= mostPending
	}); err != nil {
		return t, err
	}
	f.Say("the outbox is empty")
	if err := sleepUntil(ctx, m, time.Now().Add(afterward)); err != nil {
		return t, err
	}
	if err := m.shutDown(ctx); err != nil {
		return t, err
	}
	return t, cluster.Until(ctx, startupLimit, func() error { // the connection may still be reconnecting
		_, err := f.js.AccountInfo(ctx)
		return err
	})
}

// interrupt reboots the host, or cuts its power and starts it again.
func interrupt(ctx context.Context, m *machine, powerCut bool) error {
	if powerCut {
		m.cutPower()
	} else if err := m.shutDown(ctx); err != nil {
		return err
	}
	if err := m.start(ctx); err != nil {
		return err
	}
	return m.until(ctx, bootLimit, "programs run in the second boot", func() bool { return len(m.boots) == 2 })
}

// sleepUntil waits until a moment, or until the guest fails.
func sleepUntil(ctx context.Context, m *machine, moment time.Time) error {
	return m.until(ctx, time.Until(moment)+bootLimit, "the time is over",
		func() bool { return time.Now().After(moment) })
}

// endedPrograms is called with mu held.
func (m *machine) endedPrograms() (n int) {
	for _, p := range m.programs {
		if !p.Ended.IsZero() {
			n++
		}
	}
	return n
}
