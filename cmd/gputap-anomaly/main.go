// Command gputap-anomaly finds unusual allocations and publishes them as alerts.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/anomaly"
)

func main() { app.Main("gputap-anomaly", run) }

func run(ctx context.Context, p *app.Process) error {
	cfg, err := config.Load(p.Name, p.Args, config.DefaultAnomalyCommand())
	if err != nil {
		return app.Usage(err)
	}
	js, stop, err := p.Start(ctx, cfg.NATS, cfg.Metrics, cfg.Log)
	if err != nil {
		return err
	}
	defer stop()
	alerts := newAlerts(js, p.Log)
	p.Metrics.MustRegister(alerts)
	fresh := func() *anomaly.Detector {
		return anomaly.New(anomaly.Config{
			Warmup: cfg.Anomaly.Warmup, AllocSizeCooldown: cfg.Anomaly.AllocSizeCooldown,
			OOMCooldown: cfg.Anomaly.OOMCooldown,
			OnAlert:     func(alert anomaly.Alert) { alerts.publish(ctx, alert) },
		})
	}
	return fold.Run(ctx, p, cfg.Consumer, js, fresh, alerts.report)
}
