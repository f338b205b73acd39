// Command gputap-bandwidth answers what moves: copies by process and direction.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/bandwidth"
)

func main() { app.Main("gputap-bandwidth", run) }

func run(ctx context.Context, p *app.Process) error {
	cfg, err := config.Load(p.Name, p.Args, config.DefaultBandwidthCommand())
	if err != nil {
		return app.Usage(err)
	}
	js, stop, err := p.Start(ctx, cfg.NATS, cfg.Metrics, cfg.Log)
	if err != nil {
		return err
	}
	defer stop()
	fresh := func() *bandwidth.Meter { return bandwidth.New(bandwidth.Config{Keep: cfg.Bandwidth.Keep}) }
	return fold.Run(ctx, p, cfg.Consumer, js, fresh, report)
}
