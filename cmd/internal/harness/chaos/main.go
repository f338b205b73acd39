package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
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
	flag.Uint64Var(&o.seed, "seed", 1, "determines which disturbances happen, and when")
	flag.DurationVar(&o.duration, "duration", 3*time.Minute, "how long the fleet is disturbed")
	flag.IntVar(&o.hosts, "hosts", 200, "number of simulated hosts")
	flag.IntVar(&o.rate, "rate", 10_000, "events per second of all hosts together")
	flag.IntVar(&o.shards, "shards", 16, "number of shards")
	flag.IntVar(&o.instances, "instances", 3, "instances of each consumer")
	flag.StringVar(&o.disk, "disk", "1g", "size of the tmpfs that is filled; it must hold the store of one node")
	flag.BoolVar(&o.keep, "keep", false, "keep logs and stores")
	flag.StringVar(&o.from, "from", "",
		"revision whose programs run first and are then replaced one by one; it must have the forms of this tree")
	flag.BoolVar(&o.killsOnly, "kills-only", false,
		"only kill consumers: measures takeovers on a cluster that is otherwise healthy")
	flag.Parse()
	cluster.Main("chaos", func(ctx context.Context) error {
		err := run(ctx, o)
		if err != nil {
			err = fmt.Errorf("%w\nchaos: to repeat this run: %s", err, repeat(o.seed))
		}
		return err
	})
}

// repeat returns the command that repeats this run.
func repeat(seed uint64) string {
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
	if err := f.disturb(ctx); err != nil {
		return err
	}
	if err := f.recover(ctx); err != nil {
		return err
	}
	return f.verify(ctx)
}
