package fold

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

// summaries publishes the summaries of ranks to the shards of their jobs. After a restart a fold publishes the same
// summaries again, under the same numbers; readers drop them.
type summaries struct {
	js       jetstream.JetStream
	log      *slog.Logger
	patience time.Duration // how long to retry; after that, one attempt per summary until one is stored

	mu       sync.Mutex // held while publishing: summaries of a job keep their order
	topology schema.Topology
	gaveUp   bool
	*prometheus.CounterVec
}

func newSummaries(js jetstream.JetStream, fold string, log *slog.Logger) *summaries {
	return &summaries{js: js, log: log, patience: alertPatience,
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts(metric.Opts("gputap_consumer_summaries_total",
			prometheus.Labels{"consumer": fold})), []string{"result"})}
}

// publish stores one summary. It blocks the goroutine that applies batches, for which there is about one every ten
// seconds for each host and job.
func (s *summaries) publish(ctx context.Context, one rank.Summary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Now().Add(s.patience)
	err := s.send(&one)
	for err != nil && !s.gaveUp && time.Now().Before(until) && bus.Sleep(ctx, publishRetry) {
		err = s.send(&one)
	}
	if err == nil {
		s.gaveUp = false
		s.WithLabelValues("stored").Inc()
		return
	}
	s.WithLabelValues("failed").Inc()
	if !s.gaveUp {
		s.log.Warn("summary of ranks not stored; trying once per summary until NATS stores one", "job", one.Job,
			"err", err)
	}
	s.gaveUp = true
}

// send publishes to the newest generation of shards, which it reads anew after an error: an older shard is sealed.
func (s *summaries) send(one *rank.Summary) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	if s.topology.Shards == 0 {
		if s.topology, err = bus.ReadTopology(ctx, s.js); err != nil {
			s.topology = schema.Topology{}
			return err
		}
	}
	shard := s.topology.Shard(one.Cluster, one.Job)
	_, err = s.js.Publish(ctx, schema.Subject(shard, one.Cluster, one.Job, schema.KindRank), one.Message,
		jetstream.WithRetryAttempts(0))
	if err != nil {
		s.topology = schema.Topology{}
		return fmt.Errorf("publish to shard %d: %w", shard, err)
	}
	return nil
}
