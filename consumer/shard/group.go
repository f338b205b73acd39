package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// Options of a Group. Fold and NewReader are required.
type Options struct {
	Fold     string // name of the fold: its instances share the shards and the states
	Instance string // name of this process in the group; "": a unique one
	// NewReader returns a Reader without a state for one of so many shards, which that instance owns.
	NewReader func(shard, shards int, instance string, log *slog.Logger) Reader

	Checkpoint time.Duration // least time between two checkpoints of a shard; 0: 10 s
	Settle     time.Duration // how long another instance must be preferred before it gets a shard; 0: 3 s
	Retry      time.Duration // pause after a failure, and at most between two looks at the leases; 0: 1 s
	// Rebuild is how long an unusable state waits before it is rebuilt from the stream, which may lack what retention
	// has removed; 0: three lease TTLs. A replica may catch up. During an upgrade an old instance releases the shard
	// whose state a new one saved, and publishes that it refuses it, so that an instance that can read it claims the
	// shard.
	Rebuild time.Duration
}

func (o *Options) rebuildAfter(ttl time.Duration) time.Duration { return cmp.Or(o.Rebuild, 3*ttl) }

const (
	defaultCheckpoint = 10 * time.Second
	defaultSettle     = 3 * time.Second
	defaultRetry      = time.Second

	topologyEvery = 10          // retry intervals between two looks at the topology
	longWait      = time.Minute // for the generation before: longer is worth a warning
)

// Group is one instance among those that run the same fold. It owns some of the shards.
type Group struct {
	opts     Options
	js       jetstream.JetStream
	log      *slog.Logger
	counters Counters

	// Only Run's goroutine.
	leases     *leases
	topology   schema.Topology
	topologyAt time.Time // when it was read
	numbers    []int     // of the shards of all generations

	closedChecked bool // finishTakenOver was answered since the topology was read

	running   sync.WaitGroup // owners
	restoring chan struct{}  // held while a shard inherits
	wake      chan struct{}  // a closed shard has finished: others may wait for it

	ready     chan struct{}
	readyOnce sync.Once
	notReady  atomic.Pointer[error]

	mu          sync.Mutex
	created     time.Time // of the bus: on another one no shard is finished
	leaseTTL    time.Duration
	shards      map[int]*shardStatus
	longWaiting bool // reported, until no shard waits
	ended       bool // Run has ended: the shards that were owned then stay visible
}

// Counters count over all shards that an instance has owned.
type Counters struct{ Claims, Commits, Failed, Fenced, LeasesLost, Rebuilt, Newer, HandOvers atomic.Uint64 }

// New returns a Group that does nothing until Run.
func New(opts Options, js jetstream.JetStream, log *slog.Logger) *Group {
	opts.Instance = keyToken(cmp.Or(opts.Instance, instanceName()))
	opts.Checkpoint = cmp.Or(opts.Checkpoint, defaultCheckpoint)
	opts.Settle = cmp.Or(opts.Settle, defaultSettle)
	opts.Retry = cmp.Or(opts.Retry, defaultRetry)
	return &Group{
		opts: opts, js: js, log: log.With("consumer", opts.Fold, "instance", opts.Instance),
		restoring: make(chan struct{}, 1), wake: make(chan struct{}, 1), ready: make(chan struct{}),
		shards: map[int]*shardStatus{},
	}
}

func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := nuid.Next()
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + id[len(id)-6:]
}

// Instance returns the name of the instance.
func (g *Group) Instance() string { return g.opts.Instance }

// Ready is closed when the instance has joined the group and has looked at the leases once.
func (g *Group) Ready() <-chan struct{} { return g.ready }

// NotReadyReason returns why the instance, after Ready, is not in the group now: NATS is unreachable, or the bus was
// removed. nil: it is in the group.
func (g *Group) NotReadyReason() error {
	if err := g.notReady.Load(); err != nil {
		return *err
	}
	return nil
}

// Run folds until ctx ends; then it commits and releases its shards. It waits for NATS, for streams and for leases. It
// returns an error if the connection was closed for good or the fold's name is invalid.
func (g *Group) Run(ctx context.Context) error {
	if err := CheckName(g.opts.Fold); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer g.release()
	defer stop()
	reported := ""
	for ctx.Err() == nil {
		err := g.balance(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		if errors.Is(err, nats.ErrReconnectBufExceeded) { // how the library says so when it buffers nothing
			err = errUnreachable
		}
		if err != nil {
			g.notReady.Store(&err)
			if err.Error() != reported {
				reported = err.Error()
				g.log.Warn("cannot join the consumer group; retrying", "url", g.js.Conn().ConnectedUrlRedacted(), "err",
					err)
			}
		}
		bus.Sleep(ctx, g.opts.Retry)
	}
	return nil
}

// balance joins the group and balances until ctx ends or NATS does not answer. Shards stay owned after that while their
// leases can be renewed.
func (g *Group) balance(ctx context.Context) error {
	if err := g.readTopology(ctx); err != nil {
		return err
	}
	if g.leases == nil {
		var err error
		if g.leases, err = openLeases(ctx, g.js, g.opts.Fold, g.opts.Instance); err != nil {
			return err
		}
		g.mu.Lock()
		g.leaseTTL = g.leases.ttl
		g.mu.Unlock()
	}
	var joined time.Time
	for ctx.Err() == nil {
		refuses := g.inState(refused)
		if time.Since(joined) > g.leases.ttl/4 || !slices.Equal(refuses, g.leases.refuses) {
			g.leases.refuses = refuses
			err := g.leases.join(ctx)
			if errors.Is(err, jetstream.ErrNoStreamResponse) {
				g.leases = nil // the bucket may not exist any more
			}
			if err != nil {
				return fmt.Errorf("join the instances of %s: %w", g.opts.Fold, err)
			}
			joined = time.Now()
		}
		if err := g.step(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(min(g.leases.ttl/10, g.opts.Retry)):
		case <-g.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// readTopology reads which shards there are.
func (g *Group) readTopology(ctx context.Context) error {
	request, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	t, created, err := bus.ReadTopologySince(request, g.js)
	if err != nil {
		return err
	}
	numbers := t.Numbers()
	for i := range t.Previous {
		numbers = append(numbers, t.Previous[i].Numbers()...)
	}
	g.mu.Lock()
	same := created.Equal(g.created)
	if !same {
		g.reopen()
	}
	g.created = created
	maps.DeleteFunc(g.shards, func(shard int, s *shardStatus) bool {
		return s.owner == nil && !slices.Contains(numbers, shard)
	})
	g.mu.Unlock()
	if !same || !t.Equal(g.topology) {
		g.log.Info("topology changed", "generation", t.Generation, "shards", t.Shards, "first", t.First)
	}
	g.topologyAt, g.topology, g.numbers, g.closedChecked = time.Now(), t, numbers, false
	return nil
}

// step looks at the leases once: it claims shards that this instance should own, and hands over those that another
// instance should own.
func (g *Group) step(ctx context.Context) error {
	if time.Since(g.topologyAt) > topologyEvery*g.opts.Retry {
		if err := g.readTopology(ctx); err != nil {
			g.log.Debug("cannot read the topology", "err", err)
			g.topologyAt = time.Now()
		}
	}
	members, holders, err := g.leases.look(ctx)
	joined := slices.ContainsFunc(members, func(m member) bool { return m.name == g.opts.Instance })
	if err != nil || !joined {
		return err
	}
	if !g.closedChecked {
		g.closedChecked = g.finishTakenOver(ctx)
	}
	preferred := placements(&g.topology, members)
	for _, shard := range g.numbers {
		holder, old := holders[shard], shard < g.topology.First
		todo, o := g.apply(shard, event{
			what: looked, holder: holder, self: holder == g.opts.Instance,
			preferred: preferred[shard] == g.opts.Instance,
		})
		if o != nil && old {
			o.closed.Store(true)
		}
		switch todo {
		case claim, rebuild:
			if !old || g.closedChecked {
				g.claim(ctx, shard, todo == rebuild)
			}
		case handOver:
			g.counters.HandOvers.Add(1)
			o.stop(errHandOver)
		}
	}
	g.readyOnce.Do(func() { close(g.ready) })
	g.notReady.Store(nil)
	return nil
}

// claim acquires the lease of a shard and starts its owner.
func (g *Group) claim(ctx context.Context, shard int, rebuild bool) {
	revision, err := g.leases.acquire(ctx, shard)
	if err != nil {
		g.log.Debug("cannot acquire the lease", "shard", shard, "err", err)
		return
	}
	running, stop := context.WithCancelCause(ctx)
	o := &owner{
		shard: shard, shards: len(g.numbers), topology: g.topology, created: g.created, leases: g.leases, opts: &g.opts,
		revision: revision, rebuild: rebuild, restoring: g.restoring, stop: stop, waitsFor: noShard,
		progress: func(what eventKind) { g.apply(shard, event{what: what}) },
		checkpointer: checkpointer{
			store: store{js: g.js, fold: g.opts.Fold, shard: shard}, every: g.opts.Checkpoint,
			log: g.log.With("shard", shard), counters: &g.counters,
		},
	}
	g.apply(shard, event{what: acquired})
	g.mu.Lock()
	g.shards[shard].owner = o
	g.mu.Unlock()
	g.running.Go(func() {
		end := o.run(running)
		stop(nil)
		g.ownerEnded(o, end, ctx.Err() != nil)
	})
}

// release waits until every shard is committed and released: Run's context has ended.
func (g *Group) release() {
	if g.leases != nil {
		g.leases.leave(context.Background())
	}
	g.running.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}
