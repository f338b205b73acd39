package fold

import (
	"context"
	"errors"
	"io"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
)

// Fold is a fold that shows itself on /metrics.
type Fold interface {
	consumer.Fold
	prometheus.Collector
}

var errNotReading = errors.New("the shard is not being read yet")

// Run feeds a fold until ctx ends, with report on standard output every cfg.DisplayInterval.
func Run(ctx context.Context, p *app.Process, cfg config.Consumer, js jetstream.JetStream, f Fold, report func(io.Writer)) error {
	onlyNew, since, err := cfg.Begin()
	if err != nil {
		return app.Usage(err)
	}
	c := consumer.NewReader(consumer.ReaderOptions{Shard: cfg.Shard, New: onlyNew, Since: since, PullMaxBytes: cfg.PullMaxBytes}, js, f, p.Log)
	if err := errors.Join(p.Metrics.Register(f), p.Metrics.Register(c)); err != nil {
		return err
	}
	p.ReadyWhen(func() error {
		select {
		case <-c.Ready():
			return nil
		default:
			return errNotReading
		}
	})
	defer p.Report(cfg.DisplayInterval, report)()
	return c.Run(ctx)
}
