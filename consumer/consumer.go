package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/page"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/consumer/snapshot"
)

// Options of a Consumer. The zero value takes an even share of all shards.
type Options struct {
	Instance     string        // name of this process among all that run the fold; "": a unique one
	Checkpoint   time.Duration // least time between two checkpoints of a shard; 0: 10 s
	PullMaxBytes int           // most bytes of messages in flight for each shard; 0: 8 MiB, less with many shards
	Settle       time.Duration // how long another instance must be preferred before it gets a shard; 0: 3 s
	Retry        time.Duration // pause after a failure, and at most between two looks at the leases; 0: 1 s
	Rebuild      time.Duration // how long an unusable state waits before it is rebuilt; 0: three lease TTLs
}

// Consumer runs a fold over the shards that it owns. Each shard has its own state, which outlives the process.
// Instances of one fold share the shards. It is a prometheus.Collector.
//
// Run folds until ctx ends; then it commits its state and releases its shards.
type Consumer struct {
	*shard.Group
	fold  string
	owned func() []shard.Owned // the group's
	page  *page.Page
}

// New returns a Consumer that does nothing until Run. newFold returns an empty state for one shard.
func New(opts Options, js jetstream.JetStream, newFold func() Stateful, log *slog.Logger) *Consumer {
	first := newFold()
	group := shard.Options{
		Fold: first.Name(), Instance: opts.Instance,
		Checkpoint: opts.Checkpoint, Settle: opts.Settle, Retry: opts.Retry, Rebuild: opts.Rebuild,
	}
	group.NewReader = func(number, shards int, instance string, log *slog.Logger) shard.Reader {
		fold := newFold()
		o := ReaderOptions{Shard: number, PullMaxBytes: pullBytes(opts.PullMaxBytes, shards), Retry: opts.Retry}
		r := newReader(o, js, fold, log)
		r.owner = instance
		return &statefulReader{r, fold}
	}
	g := shard.New(group, js, log)
	c := &Consumer{Group: g, fold: first.Name(), owned: g.Owned}
	c.page = page.New(c.fold, c.collectors)
	return c
}

const (
	// All shards share a connection, and a server closes one that has more than max_pending in flight, 64 MiB by
	// default.
	mostInFlight = 32 << 20
	leastPull    = 1 << 20 // two of the largest messages
)

// pullBytes bounds the bytes in flight of one shard as if this instance owned all shards, which may happen any time.
func pullBytes(asked, shards int) int {
	return max(min(cmp.Or(asked, defaultPullBytes), mostInFlight/shards), leastPull)
}

// Each calls see for every shard that is owned and restored, in order. It skips shards of earlier generations when one
// of a later generation is owned: that has inherited their hosts.
func (c *Consumer) Each(see func(shard int, fold Stateful)) {
	for _, s := range c.Shards() {
		see(s.Number, s.Fold)
	}
}

// Shard is a shard that this instance owns and has restored.
type Shard struct {
	Number     int
	Epoch      uint64 // of the claim: it grows with each claim of the shard
	Reader     *Reader
	Fold       Stateful
	Checkpoint time.Time // when the last one was written
}

// Shards lists the shards that Each sees, in order.
func (c *Consumer) Shards() (list []Shard) {
	for _, o := range c.owned() {
		if r := o.Reader.(*statefulReader); !o.Superseded {
			list = append(list, Shard{o.Shard, o.Epoch, r.reader, r.fold, o.Written})
		}
	}
	return list
}

// statefulReader is a Reader as its shard's owner drives it.
type statefulReader struct {
	reader *Reader
	fold   Stateful
}

func (s *statefulReader) Restore(state []byte, hosts func(cluster, host string) bool) error {
	return s.reader.restore(state, s.fold, hosts)
}

func (s *statefulReader) Resume(at bus.Position) { s.reader.resume(at) }

func (s *statefulReader) Inherit(complete bool) {
	s.reader.start.complete = complete
	s.reader.start.truncated = s.reader.start.truncated || !complete
}

func (s *statefulReader) Run(ctx context.Context) error { return s.reader.Run(ctx) }

// Save waits for the current step, but does not count that as copying.
func (s *statefulReader) Save(w *snapshot.Writer) (at bus.Position, copying time.Duration, err error) {
	r := s.reader
	r.stepping.Lock()
	defer r.stepping.Unlock()
	began := time.Now()
	err = r.save(w, s.fold)
	return r.positionLocked(), time.Since(began), err
}

func (s *statefulReader) Position() bus.Position { return s.reader.position() }
func (s *statefulReader) Applied() uint64        { return s.reader.Applied() }
