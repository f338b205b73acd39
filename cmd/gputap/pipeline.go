package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/producer"
	"github.com/gputap/gputap/schema"
)

// pipeline is everything in one process: producer, embedded bus, consumers. They meet only on the
// bus, as they do in a fleet.
type pipeline struct {
	store  string // removed at the end; "" when the user wants to keep it
	server *embedded.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	shard  int // that holds this host's batches

	producer  *producer.Producer
	leak      *leak.Tracker
	anomaly   *anomaly.Detector
	launch    *launch.Histogram
	bandwidth *bandwidth.Meter
	coverage  *coverage.Fold
	folds     []fold.Fold // of them, those that are registered
	consumers []*consumer.Reader

	log            *slog.Logger
	stopProducer   context.CancelFunc
	stopConsumers  context.CancelFunc
	producerEnded  chan struct{}
	producerErr    error
	consumersEnded sync.WaitGroup
}

const (
	storeBytes = 1 << 30
	storeAge   = 24 * time.Hour
	catchUp    = 60 * time.Second
)

// newPipeline attaches the libraries; what starts after it returns is seen from its first call.
func newPipeline(ctx context.Context, cfg config.RunCommand, store string, log *slog.Logger) (p *pipeline, err error) {
	p = &pipeline{log: log, producerEnded: make(chan struct{})}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	dir := store
	if dir == "" {
		if dir, err = os.MkdirTemp("", "gputap-"); err != nil {
			return p, fmt.Errorf("create a store for the embedded bus: %w", err)
		}
		p.store = dir
	}
	if p.server, err = embedded.StartListening(dir, cfg.Embedded, log); err != nil {
		return p, err
	}
	if address, credential := p.server.Listening(); address != "" {
		log.Info("other programs may read the bus", "addr", address, "credential", credential)
	}
	if p.nc, p.js, err = p.server.Connect("gputap"); err != nil {
		return p, err
	}
	err = consumer.EnsureStreams(ctx, p.js, consumer.StreamOptions{Shards: 1, MaxAge: storeAge, MaxBytes: storeBytes})
	if err != nil {
		return p, err
	}
	topology, err := consumer.ReadTopology(ctx, p.js)
	if err != nil {
		return p, err
	}
	p.shard = topology.First // a store may have had others before
	if p.producer, err = producer.New(cfg.Producer, app.Version(), p.js, log); err != nil {
		return p, err
	}
	p.addFolds(cfg.Producer.Features)
	return p, nil
}

// addFolds makes the consumers that the features feed.
func (p *pipeline) addFolds(features []string) {
	add := func(f consumer.Fold) {
		p.consumers = append(p.consumers, consumer.NewReader(consumer.ReaderOptions{Shard: p.shard}, p.js, f, p.log))
	}
	p.coverage = coverage.New()
	add(p.coverage)
	for _, entry := range fold.All() {
		f := entry.NewUnlimited()
		if !slices.ContainsFunc(f.Kinds(), func(k schema.Kind) bool { return slices.Contains(features, k.String()) }) {
			continue
		}
		switch f := f.(type) {
		case *leak.Tracker:
			p.leak = f
		case *anomaly.Detector:
			p.anomaly = f
		case *launch.Histogram:
			p.launch = f
		case *bandwidth.Meter:
			p.bandwidth = f
		}
		p.folds = append(p.folds, f)
		add(f)
	}
}

// start begins to read and fold.
func (p *pipeline) start() {
	var consuming, producing context.Context
	consuming, p.stopConsumers = context.WithCancel(context.Background())
	producing, p.stopProducer = context.WithCancel(context.Background())
	for _, c := range p.consumers {
		p.consumersEnded.Go(func() {
			if err := c.Run(consuming); err != nil {
				p.log.Error("consumer ended", "err", err)
			}
		})
	}
	go func() {
		defer close(p.producerEnded)
		p.producerErr = p.producer.Run(producing)
	}()
}

// drain detaches, publishes what was seen, and returns when every fold has it.
func (p *pipeline) drain() error {
	p.stopProducer()
	<-p.producerEnded
	if p.producerErr != nil {
		return p.producerErr
	}
	ctx, cancel := context.WithTimeout(context.Background(), catchUp)
	defer cancel()
	jsStream, err := p.js.Stream(ctx, schema.StreamName(p.shard))
	if err != nil {
		return fmt.Errorf("look at the stream: %w", err)
	}
	for _, c := range p.consumers {
		if err := c.WaitFor(ctx, jsStream.CachedInfo().State.LastSeq); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything and removes a temporary store. Call it once, after drain or instead of it.
func (p *pipeline) close() {
	if p.stopProducer != nil {
		p.stopProducer()
		<-p.producerEnded
		p.stopConsumers()
	}
	if p.nc != nil {
		p.nc.Close() // consumers have nothing left to fetch: they need not wait for the bus
	}
	p.consumersEnded.Wait()
	if p.server != nil {
		p.server.Stop()
	}
	if p.store != "" {
		_ = os.RemoveAll(p.store)
	}
}

// collectors are what /metrics shows.
func (p *pipeline) collectors() []prometheus.Collector {
	list := []prometheus.Collector{p.producer, p.coverage}
	for _, c := range p.consumers {
		list = append(list, c)
	}
	for _, f := range p.folds {
		list = append(list, f)
	}
	return list
}

// snapshot asks every fold.
func (p *pipeline) snapshot() *snapshot {
	var l leak.Report
	var alerts []anomaly.Alert
	var launches []launch.Process
	var copies []bandwidth.Process
	if p.leak != nil {
		l, alerts = p.leak.Report(), p.anomaly.Alerts()
	}
	if p.launch != nil {
		launches = p.launch.Report()
	}
	if p.bandwidth != nil {
		copies = p.bandwidth.Report()
	}
	s := merge(l, launches, copies, alerts, p.lost())
	s.hosts(p.coverage.Report())
	return s
}

// lost is what producers told and what consumers found missing, by cause.
func (p *pipeline) lost() map[string]uint64 {
	lost := map[string]uint64{}
	for _, c := range p.consumers {
		for cause, n := range c.Lost() {
			if n > 0 {
				lost[schema.Loss(cause).String()] = max(lost[schema.Loss(cause).String()], n)
			}
		}
		s := c.Stats()
		for cause, n := range map[string]uint64{"missing_batches": s.Missing, "invalid_batches": s.Invalid + s.Refused} {
			if n > 0 {
				lost[cause] += n
			}
		}
	}
	return lost
}
