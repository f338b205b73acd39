package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

const (
	pullExpiry     = 5 * time.Second
	pullHeartbeat  = time.Second // two missed ones mean that the JetStream consumer is gone
	retryInterval  = time.Second
	requestTimeout = 5 * time.Second
	longestDrain   = time.Second
	lagInterval    = time.Second
)

// errReset is how a fetch ends that JetStream interrupted: the next one goes on behind it.
var errReset = errors.New("fetch was reset")

// Run applies the shard's batches until ctx ends. It waits for a stream or a bus that is not there
// yet. When ctx ends, what was fetched is still applied, for up to a second, but perhaps for the last message. The only errors are a
// connection that was closed for good, a shard that the bus's topology does not have and a fold whose name cannot be one.
func (r *Reader) Run(ctx context.Context) error {
	if err := checkName(r.fold.Name()); err != nil {
		return err
	}
	waiting := false
	for {
		err := r.fetch(ctx, func() { waiting = false })
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("read %s: %w", schema.StreamName(r.opts.Shard), err)
		}
		if errors.Is(err, errReset) {
			continue
		}
		if t, known := r.topologyWithout(ctx, err); known {
			return errNoShard(t, r.opts.Shard)
		}
		if !waiting {
			waiting = true
			r.sayWaiting(err)
		}
		if !sleep(ctx, retryInterval) {
			return nil
		}
	}
}

// topologyWithout says whether there is no stream since the bus was set up without this shard.
func (r *Reader) topologyWithout(ctx context.Context, err error) (schema.Topology, bool) {
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return schema.Topology{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	t, err := ReadTopology(ctx, r.js)
	_, has := t.Find(r.opts.Shard)
	return t, err == nil && !has
}

func (r *Reader) sayWaiting(err error) {
	name := schema.StreamName(r.opts.Shard)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		r.log.Warn("no such JetStream stream yet: waiting until one is created (gputap stream init)", "stream", name)
		return
	}
	r.log.Warn("stream cannot be read: trying again until it can", "stream", name, "err", err)
}

// fetch runs one ordered JetStream consumer to its end: ctx, or a reset. The library would heal a
// reset by itself, but from the old place in a stream that may be a new one.
func (r *Reader) fetch(ctx context.Context, begun func()) error {
	var err error
	if r.jsStream, err = r.js.Stream(ctx, schema.StreamName(r.opts.Shard)); err != nil {
		return fmt.Errorf("look up stream: %w", err)
	}
	r.over = ctx.Done()
	config, err := r.startFrom(ctx)
	if err != nil {
		return err
	}
	// The JetStream consumer of the last fetch may still be there, or be taken away yet: no name is used twice.
	config.NamePrefix = consumerName(r.fold.Name(), r.opts.Shard)
	if r.owner != "" {
		config.Metadata = map[string]string{OwnerKey: r.owner}
	}
	// With several filters the server searches its subjects for each message: with 600 hosts that takes eighty times
	// what sending all messages does. What the fold does not want is passed over here.
	if wanted := r.wanted(r.opts.Shard); len(wanted) == 1 {
		config.FilterSubjects = wanted
	}
	ordered, err := r.js.OrderedConsumer(ctx, schema.StreamName(r.opts.Shard), config)
	if err != nil {
		return fmt.Errorf("create ordered consumer: %w", err)
	}
	g := newGate(ordered.CachedInfo().Name)
	r.mu.Lock()
	r.behind = behind{}
	r.mu.Unlock()
	fetching, err := ordered.Consume(func(m jetstream.Msg) { g.pass(m, r.step) },
		jetstream.PullMaxBytes(r.opts.PullMaxBytes), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { r.interrupted(err, g) }))
	if err != nil {
		return fmt.Errorf("start fetching: %w", err)
	}
	begun()
	r.readyOnce.Do(func() { close(r.ready) })
	closed := fetching.Closed()
	defer r.end(ordered, fetching, closed, g)
	tick := time.NewTicker(lagInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.reset:
			return errReset
		case <-closed:
			return nats.ErrConnectionClosed
		case <-tick.C:
			r.lookBehind(ctx, g.consumer)
		}
	}
}

// wanted are the subjects of the fold's kinds, and heartbeats, in one shard.
func (r *Reader) wanted(shard int) (subjects []string) {
	for _, kind := range r.kinds {
		subjects = append(subjects, schema.KindSubjects(shard, kind))
	}
	return subjects
}

// wants tells what the fold takes from what else the stream holds.
func (r *Reader) wants(subject string) bool {
	word := subject[strings.LastIndexByte(subject, '.')+1:]
	for _, kind := range r.kinds {
		if word == kind.String() {
			return true
		}
	}
	return false
}

// end applies what was fetched, waits for the last step, and takes the JetStream consumer away
// before its own time-out would.
func (r *Reader) end(ordered jetstream.Consumer, fetching jetstream.ConsumeContext, closed <-chan struct{}, g *gate) {
	if r.js.Conn().IsConnected() {
		fetching.Drain()
		select {
		case <-closed:
		case <-time.After(longestDrain):
		}
	} else {
		fetching.Stop() // Drain would wait for the bus
	}
	g.shut() // what does not pass any more is fetched again
	<-closed
	if info := ordered.CachedInfo(); info != nil && r.js.Conn().IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.js.DeleteConsumer(ctx, schema.StreamName(r.opts.Shard), info.Name) // it may be gone already
	}
}

// interrupted ends the fetch when its JetStream consumer is gone. Whatever else comes, such as the end
// of a pull, the library deals with.
func (r *Reader) interrupted(err error, g *gate) {
	r.log.Debug("fetch interrupted", "err", err)
	if errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, nats.ErrNoResponders) {
		g.trip()
	}
}

// gate lets the messages of one JetStream consumer through until the fetch is over. Messages of
// another one mean that the library has reset the fetch.
type gate struct {
	consumer string
	reset    chan struct{}

	mu   sync.Mutex
	over bool
	meta jetstream.MsgMetadata // of the message that passes
}

func newGate(consumer string) *gate { return &gate{consumer: consumer, reset: make(chan struct{}, 1)} }

func (g *gate) trip() {
	select {
	case g.reset <- struct{}{}:
	default:
	}
}

func (g *gate) pass(m jetstream.Msg, step func(jetstream.Msg, *jetstream.MsgMetadata)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || readMetadata(m, &g.meta) != nil { // the library has parsed the same metadata before
		return
	}
	if g.meta.Consumer != g.consumer {
		g.over = true
		g.trip()
		return
	}
	step(m, &g.meta)
}

// shut waits for a step under way.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
}
