package consumer

import (
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

	"github.com/gputap/gputap/schema"
)

// Options of a Consumer. The zero value takes its even part of all shards.
type Options struct {
	Instance     string        // name of this process among all that run the fold; "": one is made
	Checkpoint   time.Duration // least time between two checkpoints of a shard; 0: 10 s
	PullMaxBytes int           // most bytes of messages under way, for each shard; 0: 8 MiB, less with many shards
	Settle       time.Duration // how long another must have been the better owner; 0: 3 s
}

const (
	defaultCheckpoint = 10 * time.Second
	defaultSettle     = 3 * time.Second
	lookAgain         = 10 * time.Second // at the topology
)

// Consumer runs a fold over the shards that it owns, each with a state of its own that outlives the process. Instances
// of one fold share the shards between them. It is a prometheus.Collector.
type Consumer struct {
	opts     Options
	js       jetstream.JetStream
	newFold  func() Stateful
	fold     string
	log      *slog.Logger
	leases   *leases
	counters ownerCounters

	topology schema.Topology
	shards   []int // of all its generations
	lookedAt time.Time
	born     time.Time         // of the bucket with the topology: another one knows nothing of what was finished
	better   map[int]time.Time // shard that another should have, since when
	free     map[int]time.Time // shard that nobody owns, since when
	refused  map[int]time.Time // shard whose state is of a newer program, since when
	finished map[int]bool      // shards of older generations that are folded to their end
	waits    map[int]time.Time // shard that cannot inherit yet, since when
	saidWait bool              // that this goes on; until none waits

	passing chan passed // what closed generations the next one has taken over, while that is asked; nil: it is not
	asked   bool        // it was, once: until then none of their shards is claimed

	inheriting chan struct{}

	ready     chan struct{}
	readyOnce sync.Once
	apart     atomic.Pointer[error]

	mu   sync.Mutex
	owns map[int]*owned
	over bool // Run has ended: what was owned then is still shown
}

// ownerCounters count over all shards that an instance has owned.
type ownerCounters struct {
	claims, commits, failed, fenced, leasesLost, rebuilt, newer, handedOver atomic.Uint64
}

// New returns a Consumer that does nothing until Run. newFold makes the state of one shard.
func New(opts Options, js jetstream.JetStream, newFold func() Stateful, log *slog.Logger) *Consumer {
	if opts.Instance == "" {
		opts.Instance = instanceName()
	}
	opts.Instance = keyToken(opts.Instance)
	if opts.Checkpoint <= 0 {
		opts.Checkpoint = defaultCheckpoint
	}
	if opts.Settle <= 0 {
		opts.Settle = defaultSettle
	}
	fold := newFold().Name()
	return &Consumer{
		opts: opts, js: js, newFold: newFold, fold: fold, log: log.With("consumer", fold, "instance", opts.Instance),
		better: map[int]time.Time{}, free: map[int]time.Time{}, refused: map[int]time.Time{}, finished: map[int]bool{}, waits: map[int]time.Time{},
		inheriting: make(chan struct{}, 1),
		ready:      make(chan struct{}), owns: map[int]*owned{},
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

// Ready is closed when the instance takes part: it owns what it should, or stands by.
func (c *Consumer) Ready() <-chan struct{} { return c.ready }

// Apart says why the instance, once Ready, takes no part now: the bus cannot be asked, or nothing is there any more. nil: it does.
func (c *Consumer) Apart() error {
	if err := c.apart.Load(); err != nil {
		return *err
	}
	return nil
}

var errAway = errors.New("the bus is away")

// Run folds until ctx ends; then it commits what it has and gives its shards away. It waits for a bus, streams and
// leases that are not there yet. The only errors are a connection that was closed for good and a fold whose name cannot be one.
func (c *Consumer) Run(ctx context.Context) error {
	if err := checkName(c.fold); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer c.giveUp()
	defer stop()
	said := ""
	for ctx.Err() == nil {
		err := c.takePart(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		if errors.Is(err, nats.ErrReconnectBufExceeded) { // its own word for it, as nothing is buffered there
			err = errAway
		}
		if err != nil {
			c.apart.Store(&err)
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			c.log.Warn("no part is taken yet: trying again until there is", "err", err)
		}
		sleep(ctx, retryInterval)
	}
	return nil
}

// takePart joins the instances of the fold and balances until ctx ends or the bus cannot be asked. Shards that are owned
// then stay so, as long as their leases can be renewed.
func (c *Consumer) takePart(ctx context.Context) error {
	if err := c.lookAtTopology(ctx); err != nil {
		return err
	}
	if c.leases == nil {
		var err error
		if c.leases, err = openLeases(ctx, c.js, c.fold, c.opts.Instance); err != nil {
			return err
		}
	}
	var joined time.Time
	for ctx.Err() == nil {
		if refuses := slices.Sorted(maps.Keys(c.refused)); time.Since(joined) > c.leases.ttl/4 || !slices.Equal(refuses, c.leases.refuses) {
			c.leases.refuses = refuses
			err := c.leases.join(ctx)
			if errors.Is(err, jetstream.ErrNoStreamResponse) {
				c.leases = nil // is the bucket still there?
			}
			if err != nil {
				return fmt.Errorf("join the instances of %s: %w", c.fold, err)
			}
			joined = time.Now()
		}
		if err := c.step(ctx); err != nil {
			return err
		}
		sleep(ctx, min(c.leases.ttl/10, time.Second))
	}
	return nil
}

// lookAtTopology reads which shards there are.
func (c *Consumer) lookAtTopology(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	t, born, err := bornTopology(asked, c.js)
	if err != nil {
		return err
	}
	if !born.Equal(c.born) {
		clear(c.finished)
		c.born, c.asked = born, false
	}
	c.asked = c.asked && t.Equal(c.topology)
	c.lookedAt, c.topology, c.shards = time.Now(), t, t.Numbers()
	for i := range t.Previous {
		c.shards = append(c.shards, t.Previous[i].Numbers()...)
	}
	c.passOn(ctx)
	return nil
}

// step takes what this instance should have and nobody owns, and gives up what another should have.
func (c *Consumer) step(ctx context.Context) error {
	if time.Since(c.lookedAt) > lookAgain {
		if err := c.lookAtTopology(ctx); err != nil {
			c.log.Debug("topology not read", "err", err)
			c.lookedAt = time.Now()
		}
	}
	members, owners, err := c.leases.look(ctx)
	heardOf := slices.ContainsFunc(members, func(m member) bool { return m.name == c.opts.Instance })
	if err != nil || !heardOf {
		return err
	}
	c.finishPassed(ctx)
	now := time.Now()
	wanted := placements(&c.topology, members)
	for _, shard := range c.shards {
		mine := c.owned(shard)
		if mine != nil && shard < c.topology.First {
			mine.closed.Store(true)
		}
		switch {
		case c.finished[shard], mine == nil && shard < c.topology.First && !c.asked:
		case mine != nil && wanted[shard] != c.opts.Instance:
			if since := noteSince(c.better, shard, now); now.Sub(since) >= c.opts.Settle && !mine.leaving {
				mine.leaving = true
				c.counters.handedOver.Add(1)
				mine.stop(errHandOver)
			}
			continue
		case mine == nil && owners[shard] == "":
			since := noteSince(c.free, shard, now)
			refused, refuses := c.refused[shard]
			switch {
			case refuses && (wanted[shard] != c.opts.Instance || now.Sub(refused) < waitForNewer*c.leases.ttl):
			case wanted[shard] == c.opts.Instance, now.Sub(since) > 2*c.leases.ttl:
				c.take(ctx, shard, refuses)
			}
			continue
		}
		delete(c.better, shard)
		delete(c.free, shard)
		if mine == nil && owners[shard] != c.opts.Instance {
			delete(c.waits, shard)
		}
	}
	c.readyOnce.Do(func() { close(c.ready) })
	c.apart.Store(nil)
	return nil
}

func noteSince(m map[int]time.Time, shard int, now time.Time) time.Time {
	if since, known := m[shard]; known {
		return since
	}
	m[shard] = now
	return now
}

// owned is the shard while it is owned or on its way out; nil otherwise.
func (c *Consumer) owned(shard int) *owned {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.owns[shard]
	if o == nil {
		return nil
	}
	select {
	case <-o.ended:
		delete(c.owns, shard)
		if o.again || c.finished[o.waitsFor] { // the states that it had are gone
			clear(c.finished)
		}
		c.noteWait(o)
		if o.done && o.born.Equal(c.born) {
			c.finished[shard] = true
		}
		if o.newer {
			c.refused[shard] = time.Now()
		}
		return nil
	default:
		return o
	}
}

const longWait = time.Minute // a closed shard may take longer to fold, which is worth a word

// noteWait says once when shards wait for long for one of the generation before.
func (c *Consumer) noteWait(o *owned) {
	now := time.Now()
	switch {
	case o.waitsFor == noShard:
		delete(c.waits, o.shard)
	case now.Sub(noteSince(c.waits, o.shard, now)) > longWait && !c.saidWait:
		c.saidWait = true
		c.log.Warn("shard waits for one of the generation before, which is not folded to its end", "shard", o.shard, "waits_for", o.waitsFor)
	}
	c.saidWait = c.saidWait && len(c.waits) > 0
}

const (
	// A server ends a connection that more than its max_pending waits for, 64 MiB by default, and all shards share one.
	mostUnderWay = 32 << 20
	leastPull    = 1 << 20 // two of the largest messages
)

// pullBytes is what a shard may have under way, as if this instance were the only one: it may be, tomorrow.
func (c *Consumer) pullBytes() int {
	pull := c.opts.PullMaxBytes
	if pull <= 0 {
		pull = defaultPullBytes
	}
	return max(min(pull, mostUnderWay/len(c.shards)), leastPull)
}

func (c *Consumer) take(ctx context.Context, shard int, rebuild bool) {
	revision, err := c.leases.acquire(ctx, shard)
	if err != nil {
		c.log.Debug("lease not taken", "shard", shard, "err", err)
		return
	}
	delete(c.free, shard)
	delete(c.refused, shard)
	running, stop := context.WithCancelCause(ctx)
	o := &owned{
		shard: shard, topology: c.topology, js: c.js, leases: c.leases, every: c.opts.Checkpoint, pull: c.pullBytes(), newFold: c.newFold,
		log: c.log.With("shard", shard), counters: &c.counters, revision: revision, store: checkpoints{js: c.js, fold: c.fold, shard: shard}, stop: stop,
		ended: make(chan struct{}), rebuild: rebuild, born: c.born, inheriting: c.inheriting, waitsFor: noShard,
	}
	c.mu.Lock()
	c.owns[shard] = o
	c.mu.Unlock()
	go o.run(running)
}

// giveUp waits until every shard is committed and given away: Run's context has ended.
func (c *Consumer) giveUp() {
	if c.leases != nil {
		c.leases.part(context.Background())
	}
	for _, o := range c.all() {
		<-o.ended
	}
	if c.passing != nil {
		<-c.passing
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// Each calls see for every shard that is owned and loaded, in order. Where a shard of a later generation is, those of the ones before
// are left out: it has inherited what they hold.
func (c *Consumer) Each(see func(shard int, fold Stateful)) {
	loaded, first := c.loaded()
	for _, o := range loaded {
		if _, fold, _ := o.view(); o.shard >= first {
			see(o.shard, fold)
		}
	}
}

// loaded are the shards that are owned and have their state, in order, and the first one whose fold is shown: of the newest
// generation among them.
func (c *Consumer) loaded() (list []*owned, first int) {
	list = slices.DeleteFunc(c.all(), func(o *owned) bool {
		reader, _, _ := o.view()
		return reader == nil
	})
	if len(list) > 0 {
		last := list[len(list)-1]
		generation, _ := last.topology.Find(last.shard)
		first = generation.First
	}
	return list, first
}

// all are the shards that are owned, in order.
func (c *Consumer) all() []*owned {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*owned
	for _, o := range c.owns {
		select {
		case <-o.ended:
			if !c.over {
				continue
			}
		default:
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *owned) int { return a.shard - b.shard })
	return list
}
