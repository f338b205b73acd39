package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// ErrShards says that the bus has another number of shards than producer.shards promises.
var ErrShards = errors.New("producer.shards is not the number of shards of the bus")

var (
	errNoTopology = errors.New("the bus has no topology: set it up with gputap stream init")
	errAway       = errors.New("the bus is away")
)

// topologyInterval is how long a host may publish to shards that were closed but not sealed.
const topologyInterval = 30 * time.Second

// vacantFor is how long a shard must have had no stream before the bus is one that was set up anew. Shards that are closed
// are sealed sooner.
const vacantFor = 2 * topologyInterval

// way is where this host's batches go under one topology.
type way struct {
	topology schema.Topology
	stored   time.Time // by the bus
	shard    int
	subjects [schema.NumKinds]string
	gone     chan struct{}             // closed when another way has taken its place
	vacant   atomic.Pointer[time.Time] // since when every answer was that the shard has no stream; nil: the last was not
}

// answered takes what became of a batch that was published.
func (w *way) answered(err error) {
	if !errors.Is(err, errNoStream) {
		w.vacant.Store(nil)
		return
	}
	w.vacant.CompareAndSwap(nil, new(time.Now()))
}

func (w *way) leadsNowhere() bool {
	since := w.vacant.Load()
	return since != nil && time.Since(*since) > vacantFor
}

// router gives every publisher the way that the bus's topology has for this host, and follows its changes.
// A host needs one right to read it: a direct get of that key.
type router struct {
	js            jetstream.JetStream
	cluster, host string
	promised      int // producer.shards; 0: whatever the bus has
	log           *slog.Logger
	interval      time.Duration // between reads

	known chan struct{} // closed when there is a way
	ask   chan struct{} // takes one: read at once
	now   atomic.Pointer[way]
}

func newRouter(js jetstream.JetStream, cluster, host string, promised int, log *slog.Logger) *router {
	return &router{
		js: js, cluster: cluster, host: host, promised: promised, log: log, interval: topologyInterval,
		known: make(chan struct{}), ask: make(chan struct{}, 1),
	}
}

// run reads the topology until ctx ends: again and again while there is none, then every 30 s and when asked.
// A broken promise is told to refuse, and nothing is published any more.
func (r *router) run(ctx context.Context, refuse func(error)) {
	failing := false
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		t, stored, err := r.read(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && r.promised != 0 && t.Shards != r.promised && !r.lags(t, stored):
			refuse(fmt.Errorf("%w: it promises %d and the bus has %d (generation %d): set it to %d, or to 0 for whatever the bus has",
				ErrShards, r.promised, t.Shards, t.Generation, t.Shards))
			return
		case err == nil:
			failing, wait = false, firstRetry
			r.follow(t, stored)
		case !failing:
			failing = true
			r.log.Warn("topology of the bus not read: trying again until it is", "err", err)
		}
		if r.now.Load() != nil {
			wait = r.interval
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)): // a fleet does not ask in step
		case <-r.ask:
		case <-ctx.Done():
			return
		}
	}
}

// lags says that a topology is what a lagging copy of the bus still says: going back to a shard that is about to be sealed
// would break the order of batches. The time at which it was stored is that of a server's clock, so a bus that was set up anew by
// one that is late is known by what it no longer has.
func (r *router) lags(t schema.Topology, stored time.Time) bool {
	was := r.now.Load()
	return was != nil && t.Generation < was.topology.Generation && !stored.After(was.stored) && !was.leadsNowhere()
}

// follow takes a topology for the present one, unless it lags.
func (r *router) follow(t schema.Topology, stored time.Time) {
	was := r.now.Load()
	if was != nil && t.Same(was.topology) || r.lags(t, stored) {
		return
	}
	w := &way{topology: t, stored: stored, shard: t.Shard(r.cluster, r.host), gone: make(chan struct{})}
	for kind := range w.subjects {
		w.subjects[kind] = schema.Subject(w.shard, r.cluster, r.host, schema.Kind(kind))
	}
	r.now.Store(w)
	if was == nil {
		close(r.known)
		r.log.Debug("topology of the bus read", "generation", t.Generation, "shard", w.shard)
		return
	}
	close(was.gone)
	r.log.Info("the bus has other shards: publishing to the new one", "generation", t.Generation, "shard", w.shard, "before", was.shard)
}

// way waits until there is one; the only error is ctx's.
func (r *router) way(ctx context.Context) (*way, error) {
	select {
	case <-r.known:
		return r.now.Load(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// again has the topology read at once: the shard of the present one refuses batches.
func (r *router) again() {
	select {
	case r.ask <- struct{}{}:
	default:
	}
}

// read is one direct get, as a request: more would need more rights.
func (r *router) read(ctx context.Context) (t schema.Topology, stored time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	subject := jetstream.DefaultAPIPrefix + "DIRECT.GET." + schema.BucketStream(schema.MetaBucket) + "." +
		schema.KeySubject(schema.MetaBucket, schema.TopologyKey)
	answer, err := r.js.Conn().RequestWithContext(ctx, subject, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return t, stored, errNoTopology
	case errors.Is(err, nats.ErrReconnectBufExceeded): // its own word for it, as nothing is buffered there
		return t, stored, errAway
	case errors.Is(err, context.DeadlineExceeded):
		return t, stored, fmt.Errorf("no answer: %w (a host needs the right to publish to %s)", err, subject)
	case err != nil:
		return t, stored, err
	}
	switch status, operation := answer.Header.Get("Status"), answer.Header.Get("KV-Operation"); {
	case status == "404" || operation != "":
		return t, stored, errNoTopology
	case status != "":
		return t, stored, fmt.Errorf("the bus answers %.40q %.100q", status, answer.Header.Get("Description"))
	}
	stored, _ = time.Parse(time.RFC3339Nano, answer.Header.Get("Nats-Time-Stamp"))
	t, err = schema.ParseTopology(answer.Data)
	return t, stored, err
}

// refusesShard says that the error may mean that the bus has other shards by now.
func refusesShard(err error) bool {
	const sealed = 10109 // JSStreamSealedErr
	var refused *jetstream.APIError
	return errors.Is(err, errNoStream) || errors.As(err, &refused) && refused.ErrorCode == sealed
}
