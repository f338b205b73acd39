package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// ReaderOptions of a Reader. The zero value reads shard 0 from the beginning of its stream.
type ReaderOptions struct {
	Shard        int
	New          bool          // begin after the messages that are stored when Run begins
	Since        time.Time     // begin with what NATS stored at this time or later; zero: all
	PullMaxBytes int           // most bytes of messages in flight; 0: 8 MiB
	Retry        time.Duration // pause after a failure; 0: 1 s
}

const (
	defaultPullBytes = 8 << 20 // 16 batches of the largest size
	defaultRetry     = time.Second
)

// Reader feeds one fold from one shard. It is a prometheus.Collector.
type Reader struct {
	opts  ReaderOptions
	js    jetstream.JetStream
	fold  Fold
	kinds []schema.Kind // the fold's, and heartbeats
	owner string        // instance that owns the shard and reads it here; "": none
	log   *slog.Logger

	stepping sync.Mutex // held by a step, and while the state is saved between two steps

	// Only the goroutine that steps, or Run while none does.
	jsStream jetstream.Stream
	start    startPoint
	decoder  *schema.Decoder
	batch    schema.Batch
	subject  []byte               // on which the batch should have come
	warned   map[string]time.Time // when a message was last logged
	stopping <-chan struct{}      // closed when Run is to end
	timing   timing

	letterFailed bool      // the last dead letter was not stored
	unansweredAt time.Time // when a dead letter last had no answer; zero: NATS has stored one since

	began     bool          // the first message was read
	ready     chan struct{} // closed when reading begins
	readyOnce sync.Once

	mu      sync.Mutex
	applied uint64        // last JetStream sequence read
	reached chan struct{} // closed when applied reaches awaited; nil while nobody waits
	awaited uint64
	stats   Stats
	newest  uint64 // last JetStream sequence that NATS has stored, as far as known
	runs    runs
	hosts   hostTable

	heardLater time.Duration // added to the times that Heard and Hosts return: see Replay.ShowHeard
}

// NewReader returns a Reader that does nothing until Run.
func NewReader(opts ReaderOptions, js jetstream.JetStream, fold Fold, log *slog.Logger) *Reader {
	return newReader(opts, js, fold, log.With("consumer", fold.Name(), "shard", opts.Shard))
}

// newReader takes a log that already names the fold and the shard.
func newReader(opts ReaderOptions, js jetstream.JetStream, fold Fold, log *slog.Logger) *Reader {
	opts.PullMaxBytes = cmp.Or(opts.PullMaxBytes, defaultPullBytes)
	opts.Retry = cmp.Or(opts.Retry, defaultRetry)
	return &Reader{
		opts: opts, js: js, fold: fold, kinds: kindsOf(fold), log: log,
		decoder: schema.NewDecoder(), warned: map[string]time.Time{},
		ready: make(chan struct{}), timing: newTiming(fold.Name(), opts.Shard), runs: newRuns(), hosts: hostTable{},
	}
}

// kindsOf are the kinds that a reader of the fold takes: the fold's, and heartbeats.
func kindsOf(fold Fold) []schema.Kind {
	kinds := append(slices.Clone(fold.Kinds()), schema.KindHost)
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Ready is closed when the stream exists and reading begins.
func (r *Reader) Ready() <-chan struct{} { return r.ready }

// Applied returns the last JetStream sequence that was read, whatever became of the message.
func (r *Reader) Applied() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// Lost sums, by cause, the latest loss counters of every producer run.
func (r *Reader) Lost() [schema.NumLosses]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs.lost()
}

// Between calls see between two batches: the fold then holds everything up to message applied of the stream. lastEvent
// is the wall time of the latest event. Folding waits until see returns.
func (r *Reader) Between(see func(applied uint64, lastEvent time.Time)) {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	r.mu.Lock()
	applied, lastEvent := r.applied, r.stats.LastEvent
	r.mu.Unlock()
	see(applied, lastEvent)
}

// Stats returns the counters.
func (r *Reader) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

const pollInterval = 100 * time.Millisecond

// WaitFor returns when everything that the stream stored up to that JetStream sequence was read: applied, dropped,
// copied to the dead letters, or skipped because the fold does not take its kind.
func (r *Reader) WaitFor(ctx context.Context, sequence uint64) error {
	for {
		applied, reached := r.watch(sequence)
		if applied >= sequence {
			return nil
		}
		select {
		case <-reached:
		case <-time.After(pollInterval): // the last messages may be for other folds
			last, folded, err := r.folded(ctx, r.Applied())
			if err == nil && folded && last >= sequence {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for consumer %s to read message %d: it has read %d: %w", r.fold.Name(), sequence,
				applied, ctx.Err())
		}
	}
}

// Folded reports whether the shard's stream now holds nothing for this fold after a message.
func (r *Reader) Folded(ctx context.Context, sequence uint64) (bool, error) {
	_, folded, err := r.folded(ctx, sequence)
	return folded, err
}

// folded also returns the stream's last sequence.
func (r *Reader) folded(ctx context.Context, sequence uint64) (last uint64, folded bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	jsStream, err := r.js.Stream(ctx, schema.StreamName(r.opts.Shard))
	if err != nil {
		return 0, false, fmt.Errorf("look up stream: %w", err)
	}
	last = jsStream.CachedInfo().State.LastSeq
	if filter := r.filter(); filter != "" {
		newest, err := jsStream.GetLastMsgForSubject(ctx, filter)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return last, true, nil
		}
		return last, err == nil && newest.Sequence <= sequence, err
	}
	folded, err = bus.NothingPending(ctx, jsStream, sequence)
	return last, folded, err
}

// watch returns a channel that is closed when a sequence is reached, or an earlier one that somebody else waits for.
func (r *Reader) watch(sequence uint64) (applied uint64, reached <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reached == nil {
		r.reached, r.awaited = make(chan struct{}), sequence
	}
	r.awaited = min(r.awaited, sequence)
	return r.applied, r.reached
}

// advance records that a message was read. mu must be held.
func (r *Reader) advance(sequence uint64) {
	r.applied = sequence
	if r.reached != nil && sequence >= r.awaited {
		close(r.reached)
		r.reached = nil
	}
}

func (r *Reader) setApplied(sequence uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(sequence)
}

// Why batches from before the first one of a run do not count as lost.
const (
	reasonLateStart = "late_start" // ReaderOptions ask for a later start
	reasonRetention = "retention"  // retention removed them, or they went to shards of an earlier generation
)

// Stats counts the messages of a Reader.
type Stats struct {
	Batches         uint64                  // applied
	Events          [schema.NumKinds]uint64 // in them, by kind
	Duplicates      uint64
	Invalid         uint64 // not a batch, or of another host than the subject names
	Refused         uint64 // Apply failed
	Unknown         uint64 // of a kind that this version does not know
	Gaps            uint64 // holes in seq
	Missing         uint64 // batches in those holes: lost
	Retention       uint64 // batches that retention removed, or that went to shards of an earlier generation
	LateStart       uint64 // batches from before the start that ReaderOptions ask for
	DeadLetters     uint64
	DeadLettersLost uint64    // could not be copied
	Lag             uint64    // messages that are stored and not read
	LastEvent       time.Time // latest event of any host
}

func (s *Stats) count(o outcome, b *schema.Batch) {
	switch o {
	case outcomeDuplicate:
		s.Duplicates++
	case outcomeInvalid:
		s.Invalid++
	case outcomeRefused:
		s.Refused++
	case outcomeUnknown:
		s.Unknown++
	case outcomeOK:
		s.Batches++
		s.Events[b.Kind] += uint64(b.Events)
		if last := b.Wall(b.Last); b.Events > 0 && last.After(s.LastEvent) {
			s.LastEvent = last
		}
	}
}

// countAbsent counts batches in a hole of seq; reason "" means that they are lost.
func (s *Stats) countAbsent(reason string, batches uint64) {
	switch {
	case batches == 0:
	case reason == reasonLateStart:
		s.LateStart += batches
	case reason == reasonRetention:
		s.Retention += batches
	default:
		s.Gaps++
		s.Missing += batches
	}
}
