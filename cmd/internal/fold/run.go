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
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/page"
	"github.com/gputap/gputap/consumer/rank"
)

// Fold is a fold with checkpoints and metrics.
type Fold interface {
	consumer.Stateful
	prometheus.Collector
}

// Run is the program of the fold: it reads the configuration, connects and folds until ctx ends.
func (d *Definition[C, F]) Run(ctx context.Context, p *app.Process, report func(io.Writer, []F)) error {
	cfg, err := config.Load(p.Name, p.Args, d.defaults())
	if err != nil {
		return app.Usage(err)
	}
	nats, options, metrics, log := cfg.Sections()
	js, stop, err := p.Start(ctx, nats, metrics, log)
	if err != nil {
		return err
	}
	defer stop()
	alerts := NewAlerts(js, d.name, p.Log)
	summaries := newSummaries(js, d.name, p.Log)
	// They have no series until the fold raises an alert or summarizes.
	if err := errors.Join(p.Metrics.Register(alerts), p.Metrics.Register(summaries)); err != nil {
		return err
	}
	raise := func(a alert.Alert) { alerts.Publish(ctx, a) }
	to := outputs{raise, func(s rank.Summary) { summaries.publish(ctx, s) }}
	create := func() F { return d.create(cfg, to) }
	return serve(ctx, p, options, js, create, report, func(c *consumer.Consumer) *silence {
		if d.silence == nil || d.silence(cfg).Mode == config.ModeOff {
			return nil
		}
		return newSilence(d.silence(cfg), js.Conn().IsConnected, shardsOf(c), storedAlerts(js.Conn()), raise)
	})
}

// serve folds until ctx ends, with a report of every fold on standard output every cfg.DisplayInterval. It shares the
// shards with the other instances of the program, or reads one shard alone when cfg names one. silent returns what
// watches for silent hosts, or nil.
func serve[F Fold](ctx context.Context, p *app.Process, cfg config.Consumer, js jetstream.JetStream,
	create func() F, report func(io.Writer, []F), silent func(*consumer.Consumer) *silence,
) error {
	if cfg.Shard >= 0 {
		return serveOneShard(ctx, p, cfg, js, create(), report)
	}
	opts := consumer.Options{Instance: cfg.Instance, Checkpoint: cfg.Checkpoint, PullMaxBytes: int(cfg.PullMaxBytes)}
	c := consumer.New(opts, js, func() consumer.Stateful { return create() }, p.Log)
	watch := silent(c)
	service := questions(c, create().Name(), watch, js.Conn(), p.Log)
	if err := errors.Join(p.Metrics.Register(c), p.Metrics.Register(service)); err != nil {
		return err
	}
	defer background(service.Run)()
	if watch != nil {
		if err := p.Metrics.Register(watch); err != nil {
			return err
		}
		defer watch.start()()
	}
	readyWhen(p, c.Ready())
	p.ReadyWhen(c.NotReadyReason)
	defer p.Report(cfg.DisplayInterval, func(w io.Writer) {
		var folds []F
		c.Each(func(_ int, f consumer.Stateful) { folds = append(folds, f.(F)) })
		report(w, folds)
	})()
	return c.Run(ctx)
}

func serveOneShard[F Fold](ctx context.Context, p *app.Process, cfg config.Consumer, js jetstream.JetStream,
	f F, report func(io.Writer, []F),
) error {
	onlyNew, since, err := cfg.Begin()
	if err != nil {
		return app.Usage(err)
	}
	c := consumer.NewReader(consumer.ReaderOptions{
		Shard: cfg.Shard, New: onlyNew, Since: since, PullMaxBytes: int(cfg.PullMaxBytes),
	}, js, f, p.Log)
	page := page.New(f.Name(), func() []prometheus.Collector { return []prometheus.Collector{f, c} })
	if err := p.Metrics.Register(page); err != nil {
		return err
	}
	readyWhen(p, c.Ready())
	defer p.Report(cfg.DisplayInterval, func(w io.Writer) { report(w, []F{f}) })()
	return c.Run(ctx)
}

func readyWhen(p *app.Process, ready <-chan struct{}) {
	p.ReadyWhen(func() error {
		select {
		case <-ready:
			return nil
		default:
			return errors.New("no shard is being read yet")
		}
	})
}
