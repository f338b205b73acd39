// Command gputap-leak answers who holds GPU memory: live allocations by process.
package main

import (
	"context"
	"io"

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
	tracker := leak.New(leak.Config{KeepEnded: cfg.Leak.KeepEnded})
	return fold.Run(ctx, p, cfg.Consumer, js, tracker, func(w io.Writer) { report(w, tracker.Report()) })
}
