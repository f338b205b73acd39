package query

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

// Shard is a shard that this process owns.
type Shard struct {
	Number int
	Epoch  uint64
	// Take copies the rows that a question asks for, between two batches. It must not keep the question.
	Take func(*Question) (Taken, error)
}

// Taken is a copy of a part of a shard's state.
type Taken struct {
	Applied   uint64
	EventTime time.Time
	Total     int           // rows before the limit
	Rows      iter.Seq[any] // encoded as JSON
}

// Options of a Service. Fold and Shards are required.
type Options struct {
	Fold     string
	Instance string // name of this process among those that run the fold
	Version  string // of the program, as NATS tools show it
	Shards   func() []Shard
	Interval time.Duration // between two looks at Shards; 0: 250 ms
}

const (
	defaultInterval = 250 * time.Millisecond
	workers         = 2
	maxQueued       = 256
)

// Service answers questions about the shards of this process. It is a prometheus.Collector.
type Service struct {
	opts  Options
	nc    *nats.Conn
	log   *slog.Logger
	queue chan *reply
	*prometheus.CounterVec
}

// NewService returns a Service that does nothing until Run.
func NewService(opts Options, nc *nats.Conn, log *slog.Logger) *Service {
	opts.Interval = cmp.Or(opts.Interval, defaultInterval)
	return &Service{
		opts: opts, nc: nc, log: log, queue: make(chan *reply, maxQueued),
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts(metric.Opts("gputap_consumer_questions_total",
			prometheus.Labels{"consumer": opts.Fold})), []string{"result"}),
	}
}

// Run answers until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for range workers {
		group.Go(func() { s.work(ctx) })
	}
	services := map[int]*listener{}
	defer func() {
		for _, l := range services {
			l.stop(s.log)
		}
	}()
	tick := time.NewTicker(s.opts.Interval)
	defer tick.Stop()
	for {
		s.step(services)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// listener is the micro service of one shard.
type listener struct {
	epoch uint64
	micro.Service
}

func (l *listener) stop(log *slog.Logger) {
	if err := l.Stop(); err != nil {
		log.Debug("cannot end a micro service", "err", err)
	}
}

// step starts and stops micro services, so that there is one for each owned shard.
func (s *Service) step(services map[int]*listener) {
	owned := map[int]uint64{}
	for _, shard := range s.opts.Shards() {
		owned[shard.Number] = shard.Epoch
	}
	for _, number := range slices.Collect(maps.Keys(services)) {
		if epoch, still := owned[number]; !still || epoch != services[number].epoch {
			services[number].stop(s.log)
			delete(services, number)
		}
	}
	for number, epoch := range owned {
		if services[number] != nil {
			continue
		}
		service, err := s.listen(number, epoch)
		if err != nil {
			s.log.Debug("cannot listen for questions; retrying", "shard", number, "err", err)
			continue
		}
		services[number] = &listener{epoch, service}
	}
}

var semver = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

func (s *Service) listen(shard int, epoch uint64) (micro.Service, error) {
	version := s.opts.Version
	if !semver.MatchString(version) { // micro rejects versions of development
		version = "0.0.0"
	}
	service, err := micro.AddService(s.nc, micro.Config{
		Name: "gputap-" + s.opts.Fold, Version: version,
		Description: "Questions about shard " + strconv.Itoa(shard) + " of " + s.opts.Fold,
		Metadata: map[string]string{
			"shard": strconv.Itoa(shard), "epoch": strconv.FormatUint(epoch, 10), "instance": s.opts.Instance,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("add a micro service: %w", err)
	}
	handle := micro.HandlerFunc(func(r micro.Request) { s.accept(s.reply(r, shard, epoch)) })
	err = service.AddEndpoint("question", handle, micro.WithEndpointQueueGroupDisabled(),
		micro.WithEndpointSubject(schema.QuestionSubject(s.opts.Fold, shard)))
	if err != nil {
		_ = service.Stop()
		return nil, fmt.Errorf("add an endpoint: %w", err)
	}
	return service, nil
}

// accept announces an answer and queues the question. The goroutine of the subscription never waits.
func (s *Service) accept(r *reply) {
	if err := r.flush(nil); err != nil {
		s.log.Debug("cannot announce an answer", "err", err)
	}
	select {
	case s.queue <- r:
	default:
		s.refuse(r, "rejected", "429", fmt.Sprintf("%d questions are queued: ask again later", maxQueued))
	}
}

// refuse counts a question that has no rows and replies with the reason.
func (s *Service) refuse(r *reply, result, code, reason string) {
	s.WithLabelValues(result).Inc()
	if err := r.fail(code, reason); err != nil {
		s.log.Debug("cannot reply to a question", "err", err)
	}
}

func (s *Service) work(ctx context.Context) {
	for {
		select {
		case r := <-s.queue:
			s.answer(r)
		case <-ctx.Done():
			return
		}
	}
}
