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
	"github.com/nats-io/nuid"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

const (
	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second // two missed heartbeats mean that the JetStream consumer is gone
	longestDrain  = time.Second
)

// OwnerKey is the metadata key of a JetStream consumer that names the instance that reads a shard as its owner. Readers
// that own nothing do not set it.
const OwnerKey = "gputap_owner"

// errReset ends a fetch that JetStream interrupted: the next one continues after it.
var errReset = errors.New("the fetch was reset")

// Run applies the shard's batches until ctx ends. It waits for NATS and for the stream. When ctx ends, it
// continues to apply fetched batches for up to a second, perhaps without the last message. It returns an error if the
// connection was closed for good, the topology has no such shard, or the fold's name is invalid.
func (r *Reader) Run(ctx context.Context) error {
	if err := shard.CheckName(r.fold.Name()); err != nil {
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
		if err := r.checkShard(ctx, err); err != nil {
			return err
		}
		if !waiting {
			waiting = true
			r.logWaiting(err)
		}
		if !bus.Sleep(ctx, r.opts.Retry) {
			return nil
		}
	}
}

// checkShard returns an error if the stream does not exist because the topology has no such shard.
func (r *Reader) checkShard(ctx context.Context, err error) error {
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	t, err := bus.ReadTopology(ctx, r.js)
	if _, has := t.Find(r.opts.Shard); err != nil || has {
		return nil
	}
	return fmt.Errorf("NATS has no shard %d: generation %d has %d shards, from %d to %d: correct consumer.shard "+
		"(gputap stream info)", r.opts.Shard, t.Generation, t.Shards, t.First, t.First+t.Shards-1)
}

func (r *Reader) logWaiting(err error) {
	name := schema.StreamName(r.opts.Shard)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		r.log.Warn("JetStream stream does not exist; waiting for gputap stream init", "stream", name)
		return
	}
	r.log.Warn("cannot read the stream; retrying", "stream", name, "err", err)
}

// fetch runs one ordered JetStream consumer until ctx ends or JetStream resets it. After a reset the library would
// continue by itself, but at the old sequence of a stream that may have been recreated.
func (r *Reader) fetch(ctx context.Context, begun func()) error {
	var err error
	if r.jsStream, err = r.js.Stream(ctx, schema.StreamName(r.opts.Shard)); err != nil {
		return fmt.Errorf("look up stream: %w", err)
	}
	r.stopping = ctx.Done()
	config, err := r.startConfig(ctx)
	if err != nil {
		return err
	}
	// The JetStream consumer of the fetch before may still exist, or be deleted later: no name is used twice.
	config.NamePrefix = consumerName(r.fold.Name(), r.opts.Shard)
	if r.owner != "" {
		config.Metadata = map[string]string{OwnerKey: r.owner}
	}
	if filter := r.filter(); filter != "" {
		config.FilterSubjects = []string{filter}
	}
	ordered, err := r.js.OrderedConsumer(ctx, schema.StreamName(r.opts.Shard), config)
	if err != nil {
		return fmt.Errorf("create ordered consumer: %w", err)
	}
	running, reset := context.WithCancelCause(ctx)
	defer reset(nil)
	g := &gate{consumer: ordered.CachedInfo().Name, reset: reset}
	r.mu.Lock()
	r.newest = 0
	r.mu.Unlock()
	fetching, err := ordered.Consume(func(m jetstream.Msg) { g.pass(m, r.step) },
		jetstream.PullMaxBytes(r.opts.PullMaxBytes), jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { r.interrupted(err, g) }))
	if err != nil {
		return fmt.Errorf("start fetching: %w", err)
	}
	begun()
	r.readyOnce.Do(func() { close(r.ready) })
	closed := fetching.Closed()
	defer r.endFetch(ordered, fetching, closed, g)
	tick := time.NewTicker(lagInterval)
	defer tick.Stop()
	for {
		select {
		case <-running.Done():
			return context.Cause(running)
		case <-closed:
			return nats.ErrConnectionClosed
		case <-tick.C:
			r.updateLag(ctx)
		}
	}
}

// filter returns the subject of the only messages that NATS sends, or "" for all. With several filters the server
// searches its subjects for each message. With 600 hosts that takes 80 times as long as sending all messages, so a
// reader of several kinds skips the others itself. So does the owner of a shard: its position is how far the fold is.
func (r *Reader) filter() string {
	if len(r.kinds) > 1 || r.owner != "" {
		return ""
	}
	return schema.KindSubjects(r.opts.Shard, r.kinds[0])
}

// wants reports whether the fold takes messages of a subject.
func (r *Reader) wants(subject string) bool {
	word := subject[strings.LastIndexByte(subject, '.')+1:]
	for _, kind := range r.kinds {
		if word == kind.String() {
			return true
		}
	}
	return false
}

// endFetch applies the fetched messages, waits for the last step, and deletes the JetStream consumer before it would
// expire.
func (r *Reader) endFetch(ordered jetstream.Consumer, fetching jetstream.ConsumeContext, closed <-chan struct{},
	g *gate) {
	if r.js.Conn().IsConnected() {
		fetching.Drain()
		select {
		case <-closed:
		case <-time.After(longestDrain):
		}
	} else {
		fetching.Stop() // Drain would wait for NATS
	}
	g.shut() // messages that do not pass any more are fetched again
	<-closed
	if info := ordered.CachedInfo(); info != nil && r.js.Conn().IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.js.DeleteConsumer(ctx, schema.StreamName(r.opts.Shard), info.Name) // it may be deleted already
	}
}

// interrupted ends the fetch when its JetStream consumer is gone. The library handles all other interruptions, such as
// the end of a pull.
func (r *Reader) interrupted(err error, g *gate) {
	r.log.Debug("fetch interrupted", "err", err)
	gone := errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, jetstream.ErrConsumerDeleted)
	if gone || errors.Is(err, nats.ErrNoResponders) {
		g.reset(errReset)
	}
}

func consumerName(fold string, shard int) string {
	id := nuid.Next()
	return schema.Token(fold) + "-" + shardLabel(shard) + "-" + id[len(id)-8:]
}

// gate passes the messages of one JetStream consumer until the fetch ends. A message of another one means that the
// library has reset the fetch.
type gate struct {
	consumer string
	reset    context.CancelCauseFunc // ends the fetch

	mu    sync.Mutex
	ended bool
	meta  jetstream.MsgMetadata // of the current message
}

func (g *gate) pass(m jetstream.Msg, step func(jetstream.Msg, *jetstream.MsgMetadata)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || readMetadata(m, &g.meta) != nil { // the library has already parsed the same metadata
		return
	}
	if g.meta.Consumer != g.consumer {
		g.ended = true
		g.reset(errReset)
		return
	}
	step(m, &g.meta)
}

// shut waits for the current step.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}
