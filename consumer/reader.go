package consumer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/gputap/gputap/schema"
)

// Fold is one consumer's state and how a batch changes it. Apply is called by one goroutine at a
// time, in seq order per host, run and kind. Apply must not keep b: its columns are reused for the
// next batch. Heartbeats (schema.KindHost) come whether Kinds names them or not: they carry the
// host's losses.
//
// A fold that also has
//
//	Lost(cluster, host, boot string, batches uint64)
//
// is told, by the same goroutine, of batches with events of its kinds that it will never see: lost,
// from before the reader's start, or refused by its own Apply. A fold that also has
//
//	Forget(cluster, host string)
//
// is told, by the same goroutine and between two batches, to let go of a host that has been silent for a day while others
// were heard of, or for longest when there are too many. The times are those at which the bus stored batches, so each reader
// of a stream says so at the same message, of several hosts in their order. A host that comes back in the same run of its
// producer is told of as one that lost a batch.
type Fold interface {
	Name() string // letters, digits, - and _: instances of one name share shards and states
	Kinds() []schema.Kind
	Apply(b *schema.Batch) error
}

type lossAware interface {
	Lost(cluster, host, boot string, batches uint64)
}

type forgetful interface {
	Forget(cluster, host string)
}

// ReaderOptions of a Reader. The zero value reads shard 0 from the beginning of its stream.
type ReaderOptions struct {
	Shard        int
	New          bool      // begin behind what is stored when Run begins
	Since        time.Time // begin with what the bus stored at this time or later; zero: all
	PullMaxBytes int       // most bytes of messages under way; 0: 8 MiB
}

const defaultPullBytes = 8 << 20 // 16 batches of the largest size

// Reader feeds one fold from one shard. It is a prometheus.Collector.
type Reader struct {
	opts  ReaderOptions
	js    jetstream.JetStream
	fold  Fold
	kinds []schema.Kind // the fold's, and heartbeats
	owner string        // instance that owns the shard and reads it here; "" else
	log   *slog.Logger

	stepping sync.Mutex // held by a step, and by who saves the state between two

	// Only the goroutine that steps, or Run while none does.
	jsStream jetstream.Stream
	place    place
	decoder  *schema.Decoder
	batch    schema.Batch
	subject  []byte // that the batch should have come on
	warnings map[string]*warning
	over     <-chan struct{} // closed when Run is to end
	unkept   bool            // the last dead letter was given up
	unacked  time.Time       // when one was last given up that had no answer; zero: the bus has taken one since

	ready     chan struct{} // closed when the stream is being read
	readyOnce sync.Once
	timing    timing

	mu      sync.Mutex
	applied uint64        // last JetStream sequence dealt with
	reached chan struct{} // closed when applied reaches awaited; nil while nobody waits
	awaited uint64
	stats   Stats
	behind  behind
	runs    runs
	hosts   hosts
}

// NewReader returns a Reader that does nothing until Run.
func NewReader(opts ReaderOptions, js jetstream.JetStream, fold Fold, log *slog.Logger) *Reader {
	return newReader(opts, js, fold, log.With("consumer", fold.Name(), "shard", opts.Shard))
}

// newReader takes a log that says whose it is.
func newReader(opts ReaderOptions, js jetstream.JetStream, fold Fold, log *slog.Logger) *Reader {
	if opts.PullMaxBytes <= 0 {
		opts.PullMaxBytes = defaultPullBytes
	}
	kinds := append(slices.Clone(fold.Kinds()), schema.KindHost)
	slices.Sort(kinds)
	return &Reader{
		opts: opts, js: js, fold: fold, kinds: slices.Compact(kinds), log: log,
		decoder: schema.NewDecoder(), warnings: map[string]*warning{},
		ready: make(chan struct{}), timing: newTiming(fold.Name(), opts.Shard), runs: newRuns(), hosts: hosts{},
	}
}

// Ready is closed when the stream is there and is being read.
func (r *Reader) Ready() <-chan struct{} { return r.ready }

// Applied is the last JetStream sequence that was dealt with: applied, dropped or passed over.
func (r *Reader) Applied() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// Lost sums, by cause, the latest loss counters of every producer run seen.
func (r *Reader) Lost() [schema.NumLosses]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs.lost()
}

// Stats reads the counters.
func (r *Reader) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// sleep waits, and says whether ctx is still good.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func consumerName(fold string, shard int) string {
	id := nuid.Next()
	return schema.Token(fold) + "-" + shardLabel(shard) + "-" + id[len(id)-8:]
}
