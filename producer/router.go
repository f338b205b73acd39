package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// ErrShards says that NATS has another number of shards than producer.shards.
var ErrShards = errors.New("producer.shards differs from the number of shards in NATS")

var errNoTopology = errors.New("NATS has no gputap topology: create it with gputap stream init")

// topologyInterval is the time between reads: so long may a host publish to shards that were closed but not sealed.
const topologyInterval = 30 * time.Second

// missingFor is how long a shard must have had no stream before gputap concludes that the streams were created again.
// A shard that was closed is sealed sooner.
const missingFor = 2 * topologyInterval

// route is where this host's batches go under one topology.
type route struct {
	topology schema.Topology
	stored   time.Time // in NATS, by a server's clock
	shard    int
	subjects [schema.NumKinds]string
	replaced chan struct{}             // closed when another route is in use
	missing  atomic.Pointer[time.Time] // since when every publish found no stream; nil after any other answer
}

// published takes the result of publishing a batch.
func (w *route) published(err error) {
	if !errors.Is(err, errNoStream) {
		w.missing.Store(nil)
		return
	}
	w.missing.CompareAndSwap(nil, new(time.Now()))
}

// hasNoStream reports whether the shard has had no stream for so long that the route is certainly out of date.
func (w *route) hasNoStream() bool {
	since := w.missing.Load()
	return since != nil && time.Since(*since) > missingFor
}

// router reads the topology from NATS and gives publishers the route of this host. A host needs one permission for
// that: a direct get of that key.
type router struct {
	js            jetstream.JetStream
	cluster, host string
	promised      int // producer.shards; 0: any number
	log           *slog.Logger
	interval      time.Duration // between reads

	known   chan struct{} // closed when there is a route
	refresh chan struct{} // takes one request to read at once
	now     atomic.Pointer[route]
}

func newRouter(js jetstream.JetStream, cluster, host string, promised int, log *slog.Logger) *router {
	return &router{
		js: js, cluster: cluster, host: host, promised: promised, log: log, interval: topologyInterval,
		known: make(chan struct{}), refresh: make(chan struct{}, 1),
	}
}

// run reads the topology until ctx ends: with back-off until there is one, then every 30 s and on request. If the
// number of shards differs from producer.shards, it calls abort with ErrShards and returns.
func (r *router) run(ctx context.Context, abort func(error)) {
	failing := false
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		t, stored, err := r.read(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && r.promised != 0 && t.Shards != r.promised && !r.stale(t, stored):
			abort(fmt.Errorf("%w: it is %d and NATS has %d (generation %d): set it to %d, or to 0 for any number",
				ErrShards, r.promised, t.Shards, t.Generation, t.Shards))
			return
		case err == nil:
			failing, wait = false, firstRetry
			r.follow(t, stored)
		case !failing:
			failing = true
			r.log.Warn("cannot read the topology from NATS; retrying", "err", err)
		}
		if r.now.Load() != nil {
			wait = r.interval
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)): // hosts of a fleet spread their reads
		case <-r.refresh:
		case <-ctx.Done():
			return
		}
	}
}

// stale reports whether a topology is that of a stale replica: going back to a shard that is about to be sealed would
// break the order of batches. The stored time is that of a server's clock; streams that were created again by a server
// with a slow clock are detected by the missing stream of the old route.
func (r *router) stale(t schema.Topology, stored time.Time) bool {
	was := r.now.Load()
	return was != nil && t.Generation < was.topology.Generation && !stored.After(was.stored) && !was.hasNoStream()
}

// follow takes a topology as the present one, unless it is stale.
func (r *router) follow(t schema.Topology, stored time.Time) {
	was := r.now.Load()
	if was != nil && t.Same(was.topology) || r.stale(t, stored) {
		return
	}
	w := &route{topology: t, stored: stored, shard: t.Shard(r.cluster, r.host), replaced: make(chan struct{})}
	for kind := range w.subjects {
		w.subjects[kind] = schema.Subject(w.shard, r.cluster, r.host, schema.Kind(kind))
	}
	r.now.Store(w)
	if was == nil {
		close(r.known)
		r.log.Debug("topology read", "generation", t.Generation, "shard", w.shard)
		return
	}
	close(was.replaced)
	r.log.Info("topology changed; publishing to the new shard", "generation", t.Generation, "shard", w.shard,
		"before", was.shard)
}

// current waits until there is a route; the only error is ctx's.
func (r *router) current(ctx context.Context) (*route, error) {
	select {
	case <-r.known:
		return r.now.Load(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// requestRefresh makes run read the topology at once: the present shard rejects batches.
func (r *router) requestRefresh() {
	select {
	case r.refresh <- struct{}{}:
	default:
	}
}

// read makes one direct get as a plain request: the JetStream client would need more permissions.
func (r *router) read(ctx context.Context) (t schema.Topology, stored time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	subject := jetstream.DefaultAPIPrefix + "DIRECT.GET." + schema.BucketStream(schema.MetaBucket) + "." +
		schema.KeySubject(schema.MetaBucket, schema.TopologyKey)
	answer, err := r.js.Conn().RequestWithContext(ctx, subject, nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return t, stored, errNoTopology
	}
	if err != nil {
		return t, stored, explain(r.js.Conn(), subject, err)
	}
	switch status, operation := answer.Header.Get("Status"), answer.Header.Get("KV-Operation"); {
	case status == "404" || operation != "":
		return t, stored, errNoTopology
	case status != "":
		return t, stored, fmt.Errorf("NATS replied %.40q %.100q", status, answer.Header.Get("Description"))
	}
	stored, _ = time.Parse(time.RFC3339Nano, answer.Header.Get("Nats-Time-Stamp"))
	t, err = schema.ParseTopology(answer.Data)
	return t, stored, err
}

// explain adds the subject, the server, and the server's own error about the subject to a failed publish or request.
func explain(nc *nats.Conn, subject string, err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // nats.go returns it while disconnected without a buffer
		return fmt.Errorf("NATS is unreachable at %s", strings.Join(nc.Servers(), ", "))
	}
	err = fmt.Errorf("%s at %s: %w", subject, nc.ConnectedUrlRedacted(), err)
	if said := nc.LastError(); said != nil && strings.Contains(said.Error(), subject) {
		err = fmt.Errorf("%w: %w", err, said)
	}
	return err
}

// rejectsShard reports whether an error may mean that the topology changed.
func rejectsShard(err error) bool {
	const sealed = 10109 // JSStreamSealedErr
	var refused *jetstream.APIError
	return errors.Is(err, errNoStream) || errors.As(err, &refused) && refused.ErrorCode == sealed
}
