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
	"os"
	"time"

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
