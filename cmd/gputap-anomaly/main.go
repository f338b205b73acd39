// Command gputap-anomaly finds unusual allocations and publishes them as alerts.
package main

import (
	"context"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/anomaly"
)

func main() { app.Main("gputap-anomaly", run) }

func run(ctx context.Context, p *app.Process) error {
	type (
		create = func() *anomaly.Detector
		report = func(io.Writer, []*anomaly.Detector)
	)
	return fold.Anomaly.RunWith(ctx, p, func(js jetstream.JetStream, cfg config.AnomalyCommand) (create, report) {
		alerts := newAlerts(js, p.Log)
		p.Metrics.MustRegister(alerts)
		options := fold.AnomalyConfig(cfg)
		options.OnAlert = func(alert anomaly.Alert) { alerts.publish(ctx, alert) }
		return func() *anomaly.Detector { return anomaly.New(options) }, alerts.report
	})
}
