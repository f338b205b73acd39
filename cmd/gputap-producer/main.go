// Command gputap-producer watches the CUDA calls of one host and publishes them.
package main

import (
	"context"
	"errors"
	"os"
	"runtime"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer"
	"github.com/gputap/gputap/producer/preflight"
)

func main() { app.Main("gputap-producer", run) }

func run(ctx context.Context, p *app.Process) error {
	chosen := os.Getenv("GOMAXPROCS") != ""
	if !chosen {
		runtime.GOMAXPROCS(1) // more would only wake each other on a host that computes
	}
	cfg, err := config.Load(p.Name, p.Args, config.DefaultProducerCommand())
	if err != nil {
		return app.Usage(err)
	}
	if cfg.NATS.InboxPrefix == "" {
		if cfg.NATS.InboxPrefix, err = producer.InboxPrefix(cfg.Producer); err != nil {
			return err
		}
	}
	js, stop, err := p.Start(ctx, cfg.NATS, cfg.Metrics, cfg.Log)
	if err != nil {
		return err
	}
	defer stop()
	tap, err := producer.New(cfg.Producer, app.Version(), js, p.Log)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, preflight.ErrReturnProbes) {
		return app.Privilege(err)
	}
	if err != nil {
		return err
	}
	if !chosen {
		tap.AdjustThreads(func(n int) { runtime.GOMAXPROCS(min(n, runtime.NumCPU())) })
	}
	p.Metrics.MustRegister(tap)
	if err := tap.Run(ctx); errors.Is(err, producer.ErrShards) {
		return app.Usage(err)
	} else if err != nil {
		return err
	}
	return nil
}
