package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
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
		first()
		return
	}
	var o options
	flag.DurationVar(&o.duration, "duration", 20*time.Minute, "how long the bus is away; at least 2m, since a boot takes a while")
	flag.IntVar(&o.rate, "rate", 100, "calls a second of memory, and as many launches")
	flag.BoolVar(&o.powerCut, "power-cut", false, "the host loses its power instead of rebooting")
	flag.StringVar(&o.accel, "accel", "auto", "of qemu: kvm, tcg, or auto: kvm where a kernel boots with it")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory of logs, store and disk also when all is well")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}
