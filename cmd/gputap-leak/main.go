// Command gputap-leak answers who holds GPU memory: live allocations by process.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/leak"
)

func main() { app.Main("gputap-leak", run) }

func run(ctx context.Context, p *app.Process) error {
	cfg, err := config.Load(p.Name, p.Args, config.DefaultLeakCommand())
	if err != nil {
		return app.Usage(err)
	}
	js, stop, err := p.Start(ctx, cfg.NATS, cfg.Metrics, cfg.Log)
	if err != nil {
		return err
	}
	defer stop()
	fresh := func() *leak.Tracker { return leak.New(leak.Config{KeepEnded: cfg.Leak.KeepEnded}) }
	return fold.Run(ctx, p, cfg.Consumer, js, fresh, report)
}
