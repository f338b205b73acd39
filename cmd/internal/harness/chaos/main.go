package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	seed      uint64
	duration  time.Duration
	hosts     int
	rate      int
	shards    int
	instances int
	disk      string
	keep      bool
	from      string
	killsOnly bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "what happens, and when")
	flag.DurationVar(&o.duration, "duration", 3*time.Minute, "time of trouble")
	flag.IntVar(&o.hosts, "hosts", 200, "simulated hosts")
	flag.IntVar(&o.rate, "rate", 10_000, "events a second of all hosts")
	flag.IntVar(&o.shards, "shards", 16, "shards")
	flag.IntVar(&o.instances, "instances", 3, "instances of each consumer")
	flag.StringVar(&o.disk, "disk", "1g", "size of the disk that is filled, a tmpfs: must hold what a node stores")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory of logs and stores")
	flag.StringVar(&o.from, "from", "", "commit whose programs run at first; they are replaced one by one")
	flag.BoolVar(&o.killsOnly, "kills-only", false, "kill consumers and do nothing else: how long it takes until others fold, on a cluster that is well")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\nchaos: the same again: %s\n", err, again(o.seed))
		os.Exit(1)
	}
}

// again is the command that does the same.
func again(seed uint64) string {
	var flags []string
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "seed" {
			flags = append(flags, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	return fmt.Sprintf("make test-chaos SEED=%d CHAOS=%q", seed, strings.Join(flags, " "))
}

func run(ctx context.Context, o options) (err error) {
	f, err := newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		f.keep = f.keep || err != nil && ctx.Err() == nil
		f.close()
	}()
	if err := f.start(ctx); err != nil {
		return err
	}
	if err := f.trouble(ctx); err != nil {
		return err
	}
	if err := f.rest(ctx); err != nil {
		return err
	}
	return f.verify(ctx)
}
