package pipeline

import (
	"cmp"
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
	"github.com/gputap/gputap/cmd/internal/local"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/page"
	"github.com/gputap/gputap/producer"
	"github.com/gputap/gputap/schema"
)

// Pipeline is a producer, an embedded NATS server and one consumer for each fold.
type Pipeline struct {
	server *embedded.Server
	nc     *nats.Conn
	js     jetstream.JetStream

	features []string      // that the producer watches
	kinds    []schema.Kind // of the features

	producer *producer.Producer
	folds    fold.Set        // of the shard of this host
	alerts   []*fold.Alerts  // store the alerts of the folds
	recorder *recorder       // nil without Record
	socket   *local.Listener // nil without Listen

	log            *slog.Logger
	publishing     context.Context // of the folds that publish
	stopPublishing context.CancelFunc
	stopProducer   context.CancelFunc
	stopConsumers  context.CancelFunc
	producerEnded  chan struct{}
	producerErr    error
	consumersEnded sync.WaitGroup
}

const (
	storeAge  = 24 * time.Hour
	drainTime = 60 * time.Second // for the folds to read all that the producer published
)

// New attaches the probes. A program that starts after New returns is seen from its first call. store is the directory
// of the streams, or "" for a temporary one.
func New(ctx context.Context, cfg config.RunCommand, store string, log *slog.Logger) (p *Pipeline, err error) {
	p = &Pipeline{log: log, producerEnded: make(chan struct{}), features: cfg.Producer.Features}
	p.publishing, p.stopPublishing = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if store == "" {
		p.server, err = embedded.StartTemporary(os.TempDir(), cfg.Embedded, log)
	} else {
		p.server, err = embedded.Start(store, cfg.Embedded, log)
	}
	if err != nil {
		return p, err
	}
	if address, credential := p.server.Listening(); address != "" {
		log.Info("other programs may read the stream", "addr", address, "credential", credential)
	}
	if p.nc, p.js, err = p.server.Connect("gputap"); err != nil {
		return p, err
	}
	// Checkpoints need space too.
	eventBytes := int64(cmp.Or(cfg.Embedded.StoreMaxBytes, config.DefaultStoreMaxBytes)) / 2
	err = bus.EnsureStreams(ctx, p.js, bus.StreamOptions{
		Shards: 1, MaxAge: storeAge, MaxBytes: eventBytes, MoreRoom: "use a larger --store-max-bytes",
	})
	if err != nil {
		return p, fmt.Errorf("create the streams of this run: %w", err)
	}
	topology, err := bus.ReadTopology(ctx, p.js)
	if err != nil {
		return p, err
	}
	p.folds.Shard = topology.First // a kept store may have closed generations
	if p.producer, err = producer.New(cfg.Producer, app.Version(), p.js, log); err != nil {
		return p, err
	}
	p.kinds, err = cfg.Producer.Kinds()
	p.addFolds(cfg, p.kinds)
	return p, err
}

// raise returns what stores the alerts of a fold.
func (p *Pipeline) raise(name string) func(alert.Alert) {
	alerts := fold.NewAlerts(p.js, name, p.log)
	p.alerts = append(p.alerts, alerts)
	return func(a alert.Alert) { alerts.Publish(p.publishing, a) }
}

// addFolds adds the folds for which there are events, each with its consumer.
func (p *Pipeline) addFolds(cfg config.RunCommand, kinds []schema.Kind) {
	if cfg.Leak.Mode == config.ModeDefault {
		cfg.Leak.Mode = cfg.Anomaly.Mode // --anomaly-mode sets all rules
	}
	for _, entry := range fold.All() {
		f := entry.NewUnlimited()
		switch entry.Name() {
		case fold.Leak.Name(): // its coverage fold is needed without the feature memory too
			f = fold.MemoryOfRun(cfg.Leak, p.raise(entry.Name()))
		case fold.Anomaly.Name():
			f = fold.AnomaliesIn(p.publishing, cfg.Anomaly, p.js, p.raise(entry.Name()), p.log)
		}
		if slices.ContainsFunc(f.Kinds(), func(k schema.Kind) bool { return slices.Contains(kinds, k) }) {
			p.addFold(f)
		}
	}
	p.addFold(coverage.New())
}

func (p *Pipeline) addFold(f fold.Fold) {
	p.folds.Add(f, consumer.NewReader(consumer.ReaderOptions{Shard: p.folds.Shard}, p.js, f, p.log))
}

// Start starts the producer and the consumers.
func (p *Pipeline) Start() {
	var consuming, producing context.Context
	consuming, p.stopConsumers = context.WithCancel(context.Background())
	producing, p.stopProducer = context.WithCancel(context.Background())
	for _, c := range p.folds.Readers {
		p.consumersEnded.Go(func() {
			if err := c.Run(consuming); err != nil {
				p.log.Error("consumer failed", "err", err)
			}
		})
	}
	for _, service := range fold.Services([]*fold.Set{&p.folds}, p.nc, p.log) {
		p.consumersEnded.Go(func() { service.Run(consuming) })
	}
	go func() {
		defer close(p.producerEnded)
		p.producerErr = p.producer.Run(producing)
	}()
}

// ProducerEnded is closed when the producer has ended.
func (p *Pipeline) ProducerEnded() <-chan struct{} { return p.producerEnded }

// Drain detaches the probes, publishes the last batches, and returns when every fold has applied them.
func (p *Pipeline) Drain() error {
	p.stopProducer()
	<-p.producerEnded
	if p.producerErr != nil {
		return p.producerErr
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	jsStream, err := p.js.Stream(ctx, schema.StreamName(p.folds.Shard))
	if err != nil {
		return fmt.Errorf("read the state of the stream: %w", err)
	}
	for _, c := range p.folds.Readers {
		if err := c.WaitFor(ctx, jsStream.CachedInfo().State.LastSeq); err != nil {
			return err
		}
	}
	return nil
}

// Close stops everything and removes a temporary store. Call it once, with or without Drain before it.
func (p *Pipeline) Close() {
	if p.socket != nil {
		p.socket.Close()
	}
	if p.stopProducer != nil {
		p.stopProducer()
		<-p.producerEnded
		p.stopConsumers()
	}
	_ = p.EndRecording() // after an error; it was logged
	p.stopPublishing()
	if p.nc != nil {
		p.nc.Close() // ends the consumers' requests, which would otherwise wait for their timeout
	}
	p.consumersEnded.Wait()
	if p.server != nil {
		p.server.Stop()
	}
}

// Collectors returns the collectors of the producer, the consumers and the folds.
func (p *Pipeline) Collectors() []prometheus.Collector {
	list := []prometheus.Collector{p.producer}
	for _, a := range p.alerts {
		list = append(list, a)
	}
	for i, f := range p.folds.Folds {
		parts := []prometheus.Collector{f, p.folds.Readers[i]}
		list = append(list, page.New(f.Name(), func() []prometheus.Collector { return parts }))
	}
	return list
}

// Snapshot reads the folds. The process with the most live memory comes first.
func (p *Pipeline) Snapshot() *report.Snapshot {
	s := report.New(time.Now())
	s.Watches(p.features, true)
	p.folds.AddTo(s)
	s.Sort()
	return s
}

// Largest returns the n rows of equal live allocations with the most bytes.
func (p *Pipeline) Largest(n int) []leak.TopRow { return fold.Largest([]*fold.Set{&p.folds}, n) }

// Lost returns by cause what was lost: see report.Lost.
func (p *Pipeline) Lost() map[string]uint64 { return report.Lost(p.folds.Readers) }
