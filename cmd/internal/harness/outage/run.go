package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	bootLimit  = 10 * time.Minute // where qemu emulates each instruction, beside other work
	drainLimit = 10 * time.Minute
	after      = 10 * time.Second // of work with the bus back
	inFlight   = 4                // batches that may wait for an ack at any time, one of each kind
)

// times are what was done, by our clock.
type times struct{ down, reboot, up time.Time }

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "gputap-outage-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && !o.keep {
			_ = os.RemoveAll(dir)
			return
		}
		fmt.Println("logs, the guest's console, the bus's store and the disk are in", dir)
	}()
	f, err := newFleet(ctx, dir)
	defer f.close()
	if err != nil {
		return err
	}
	m, err := newMachine(ctx, dir, o.accel, fmt.Sprintf("nats://10.0.2.2:%d", f.port), o.rate)
	if err != nil {
		return err
	}
	f.say("bus away for %s, %s in the middle, 2 × %d calls/s, qemu with %s", o.duration, o.middle(), o.rate, m.accel)
	if err := m.start(ctx); err != nil {
		return err
	}
	defer m.cut()
	t, err := trouble(ctx, f, m, o)
	if err != nil {
		return err
	}
	return verify(ctx, f, m, t, o.powerCut)
}

func (o options) middle() string {
	if o.powerCut {
		return "power cut"
	}
	return "reboot"
}

// trouble is the outage, from before it until everything has come to its end.
func trouble(ctx context.Context, f *fleet, m *machine, o options) (t times, err error) {
	if err := m.until(ctx, bootLimit, "a program has ended in the first boot", func() bool { return m.endedPrograms() > 0 }); err != nil {
		return t, err
	}
	f.killNATS()
	t.down = time.Now()
	f.say("nats-server is killed")
	if err := wait(ctx, m, t.down.Add(o.duration/2)); err != nil {
		return t, err
	}
	t.reboot = time.Now()
	f.say("%s; %s", o.middle(), m.waiting())
	if err := again(ctx, m, o.powerCut); err != nil {
		return t, err
	}
	f.say("the host is back, after %.0f s", time.Since(t.reboot).Seconds())
	if err := wait(ctx, m, t.down.Add(o.duration)); err != nil {
		return t, err
	}
	t.up = time.Now()
	f.say("nats-server comes back after %.0f s; %s", t.up.Sub(t.down).Seconds(), m.waiting())
	if err := f.startNATS(); err != nil {
		return t, err
	}
	if err := m.until(ctx, drainLimit, "the outbox is empty", func() bool {
		return m.outboxAt.After(t.up) && m.outbox.Batches <= inFlight
	}); err != nil {
		return t, err
	}
	f.say("the outbox is empty")
	if err := wait(ctx, m, time.Now().Add(after)); err != nil {
		return t, err
	}
	if err := m.shutDown(ctx); err != nil {
		return t, err
	}
	return t, f.connect(ctx)
}

// again lets the host begin anew, in order or not.
func again(ctx context.Context, m *machine, powerCut bool) error {
	if powerCut {
		m.cut()
	} else if err := m.shutDown(ctx); err != nil {
		return err
	}
	if err := m.start(ctx); err != nil {
		return err
	}
	return m.until(ctx, bootLimit, "programs run in the second boot", func() bool { return len(m.boots) == 2 })
}

// wait waits until a moment, or until the guest fails.
func wait(ctx context.Context, m *machine, moment time.Time) error {
	return m.until(ctx, time.Until(moment)+bootLimit, "a moment", func() bool { return time.Now().After(moment) })
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
