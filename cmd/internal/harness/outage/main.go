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
	rate     int
	powerCut bool
	accel    string
	keep     bool
}

func main() {
	if os.Getpid() == 1 {
		initMain()
		return
	}
	var o options
	flag.DurationVar(&o.duration, "duration", 20*time.Minute,
		"how long NATS is unreachable; at least 2m, because a boot takes a while")
	flag.IntVar(&o.rate, "rate", 100, "memory calls per second, and as many launches")
	flag.BoolVar(&o.powerCut, "power-cut", false, "the host loses its power instead of rebooting")
	flag.StringVar(&o.accel, "accel", "auto", "accelerator of qemu: kvm, tcg, or auto (kvm if a kernel boots with it)")
	flag.BoolVar(&o.keep, "keep", false, "keep logs, store and disk of a run that succeeded")
	flag.Parse()
	cluster.Main("outage", func(ctx context.Context) error { return run(ctx, o) })
}
