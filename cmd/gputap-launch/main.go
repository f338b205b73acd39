// Command gputap-launch answers what runs: launches by process and CUDA kernel.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/launch"
)

func main() { app.Main("gputap-launch", run) }

func run(ctx context.Context, p *app.Process) error {
	cfg, err := config.Load(p.Name, p.Args, config.DefaultLaunchCommand())
	if err != nil {
		return app.Usage(err)
	}
	js, stop, err := p.Start(ctx, cfg.NATS, cfg.Metrics, cfg.Log)
	if err != nil {
		return err
	}
	defer stop()
	fresh := func() *launch.Histogram {
		return launch.New(launch.Config{Keep: cfg.Launch.Keep, MaxKernels: cfg.Launch.MaxKernels})
	}
	return fold.Run(ctx, p, cfg.Consumer, js, fresh, report)
}
