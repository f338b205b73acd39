package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	from, through string
	stage         time.Duration
	keep          bool
}

func main() {
	var o options
	flag.StringVar(&o.from, "from", "fe9feb2", "commit that the fleet begins with: of the wire's minor version 1")
	flag.StringVar(&o.through, "through", "834938a", "commit between that one and today's tree: the first with today's states")
	flag.DurationVar(&o.stage, "stage", 8*time.Second, "time between two changes; the longest program takes 5s")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory of logs and stores also when all is well")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "upgrade:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("uprobes need root: run it as root")
	}
	dir, err := os.MkdirTemp("", "gputap-upgrade-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && !o.keep {
			_ = os.RemoveAll(dir)
			return
		}
		fmt.Println("logs and stores are in", dir)
	}()
	r, err := buildReleases(ctx, dir, o)
	if err != nil {
		return err
	}
	for _, way := range []struct {
		name string
		run  func(context.Context, *fleet, releases) error
	}{{"consumers-first", consumersFirst}, {"producer-first", producerFirst}} {
		if err := oneWay(ctx, filepath.Join(dir, way.name), o, r, way.run); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return nil
}

func oneWay(ctx context.Context, dir string, o options, r releases, way func(context.Context, *fleet, releases) error) error {
	f, err := newFleet(ctx, dir, o.stage, r.today)
	defer f.close()
	if err != nil {
		return err
	}
	if err := way(ctx, f, r); err != nil {
		return err
	}
	return verify(ctx, f)
}
