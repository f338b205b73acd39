package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/redact"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Options of a Recorder.
type Options struct {
	JetStream    jetstream.JetStream
	Path         string    // file to create or to continue; with rotation, the files' name without their numbers
	To           io.Writer // instead of a file, if Path is ""
	MaxFileBytes int64     // a file ends with the block that reaches this size; 0: no rotation
	Selection    recording.Selection
	Redact       bool          // replace private names by pseudonyms
	Since        time.Time     // begin with what NATS stored at this time or later; zero: with new messages
	Until        time.Time     // end before what NATS stored at this time; zero: when ctx ends
	Drain        time.Duration // most time to record the stored messages after ctx ends; 0: 10 s
	Log          *slog.Logger
}

// LeastFileBytes is the least sensible MaxFileBytes: a block has up to so many bytes before compression, and each file
// begins with the state of the folds.
const LeastFileBytes = 1 << 20

const (
	defaultDrain  = 10 * time.Second
	flushInterval = time.Second // a kill loses at most this
	lookForShards = 10 * time.Second
	queued        = 16 // messages that wait for the writer
)

// Stats are the figures of a Recorder.
type Stats struct {
	Files             int
	Bytes             int64 // written by this recorder
	Messages, Events  uint64
	Shards            int
	Removed           uint64    // messages that retention removed before they were read
	TooLong           uint64    // messages above the limit of a recording
	LeftOut           uint64    // messages that could not be redacted
	First, Last       time.Time // when NATS stored the first and the last recorded message
	Incomplete        int       // shards whose state does not cover all earlier events
	Path              string    // of the current file
	FirstPath         string    // of the first file that this recorder wrote to
	Continued, Behind bool      // an earlier recording was continued; stored messages were left when Drain was over
}

// Lost returns an error if messages are missing in the recording.
func (s *Stats) Lost() error {
	switch {
	case s.Removed > 0:
		return fmt.Errorf("record the streams: retention removed %s before gputap read them: keep more on the bus "+
			"(gputap stream init --max-age, --max-bytes), or begin later (--since)",
			app.Plural(s.Removed, "message", "messages"))
	case s.TooLong > 0:
		return fmt.Errorf("record the streams: %s were too long", app.Plural(s.TooLong, "message", "messages"))
	case s.LeftOut > 0:
		return fmt.Errorf("record the streams: %s could not be redacted and were left out",
			app.Plural(s.LeftOut, "message", "messages"))
	}
	return nil
}

// Recorder records until its end. Use New.
type Recorder struct {
	Options
	out     *output
	ready   chan struct{}
	sources sync.WaitGroup
	in      chan *recording.Message
	ended   chan error               // of each source, nil or its error
	found   chan []*source           // for shards that were added
	replays map[int]*consumer.Replay // of each shard, with rotation
	jobs    *recording.JobHosts      // nil without a selected job
	closed  map[int]closedShard      // that were read so far, while Run begins

	topologyTime  time.Duration // between two looks at the topology
	noCheckpoints bool          // NATS does not let this user read checkpoints

	stopping chan struct{} // closed when ctx ends
	removed  atomic.Uint64
	behind   atomic.Bool

	mu    sync.Mutex
	stats Stats
}

// New returns a Recorder that does nothing until Run.
func New(o Options) *Recorder {
	o.Drain = cmp.Or(o.Drain, defaultDrain)
	return &Recorder{
		Options: o, ready: make(chan struct{}), in: make(chan *recording.Message, queued), ended: make(chan error),
		found: make(chan []*source), replays: map[int]*consumer.Replay{}, closed: map[int]closedShard{},
		stopping: make(chan struct{}), topologyTime: lookForShards,
	}
}

// Ready is closed when the first message of each shard is determined.
func (r *Recorder) Ready() <-chan struct{} { return r.ready }

// Stats returns the figures so far. Any goroutine may call it at any time.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Removed, s.Behind = r.removed.Load(), r.behind.Load()
	return s
}

// Run records until Until is reached or ctx ends. After the end of ctx it records the messages that are stored then.
func (r *Recorder) Run(ctx context.Context) (err error) {
	reading, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	if r.Selection.Job != "" {
		if r.jobs, err = recording.NewJobHosts(r.Selection.Job); err != nil {
			return err
		}
	}
	if r.out, err = openOutput(&r.Options); err != nil {
		return err
	}
	sources, err := r.begin(ctx)
	if err != nil {
		return cmp.Or(err, r.out.close()) // which fails, too, after a failed write
	}
	close(r.ready)
	defer context.AfterFunc(ctx, func() {
		close(r.stopping)
		time.AfterFunc(r.Drain, abort)
	})()
	watching, unwatch := context.WithCancel(ctx)
	if !r.Until.IsZero() {
		watching, unwatch = context.WithDeadline(ctx, r.Until)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watchTopology(watching, sources)
	}()
	err = r.write(reading, sources, watched)
	r.behind.Store(reading.Err() != nil)
	abort()
	unwatch()
	<-watched
	r.sources.Wait()
	err = cmp.Or(err, r.out.close())
	r.count(nil)
	return err
}

// start starts to read shards.
func (r *Recorder) start(ctx context.Context, sources []*source) {
	for _, s := range sources {
		r.sources.Go(func() {
			err := s.run(ctx)
			select {
			case r.ended <- err:
			case <-ctx.Done():
			}
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Shards += len(sources)
}

// write records messages of the sources until all of them have ended and none will be added, or ctx ends.
func (r *Recorder) write(ctx context.Context, sources []*source, watched <-chan struct{}) error {
	r.start(ctx, sources)
	flush := time.NewTicker(flushInterval)
	defer flush.Stop()
	for reading := len(sources); reading > 0 || watched != nil; {
		var err error
		select {
		case m := <-r.in:
			err = r.append(m)
		case <-flush.C:
			err = r.out.flush()
			r.count(nil)
		case added := <-r.found:
			err = r.add(ctx, added)
			reading += len(added)
		case err = <-r.ended:
			reading--
		case <-watched:
			watched = nil
		case <-ctx.Done(): // the time to drain is over
			return nil
		}
		if err != nil {
			return err
		}
	}
	return r.rest()
}

// add adds shards to the recording. A fold of them knows nothing of the shards where their hosts were before.
func (r *Recorder) add(ctx context.Context, added []*source) error {
	for _, s := range added {
		if r.MaxFileBytes > 0 && r.wantsState() {
			r.replays[s.shard] = consumer.NewReplay(s.shard, newTracker(), false, r.Log)
		}
	}
	if err := r.out.addStreams(streamsOf(added)); err != nil {
		return err
	}
	r.start(ctx, added)
	return nil
}

// rest records the messages that the sources had queued when they ended.
func (r *Recorder) rest() error {
	for {
		select {
		case m := <-r.in:
			if err := r.append(m); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// append records one message.
func (r *Recorder) append(m *recording.Message) error {
	err := r.out.append(m)
	tooLong, leftOut := errors.Is(err, recording.ErrTooLong), errors.Is(err, redact.ErrLeftOut)
	if tooLong || leftOut {
		r.Log.Warn("message not recorded", "err", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		if tooLong {
			r.stats.TooLong++
		} else {
			r.stats.LeftOut++
		}
		return nil
	}
	if err != nil {
		return err
	}
	if p := r.replays[m.Shard]; p != nil {
		p.Apply(m)
	}
	r.count(m)
	if !r.out.full() {
		return nil
	}
	return r.out.rotate(r.replays)
}

// count updates the figures, after m was recorded.
func (r *Recorder) count(m *recording.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.stats
	s.Files, s.Path, s.Bytes, s.Events = r.out.files, r.out.path, r.out.bytes(), r.out.events()
	s.FirstPath = r.out.first
	if m == nil {
		return
	}
	s.Messages++
	if s.First.IsZero() || m.Stored.Before(s.First) {
		s.First = m.Stored
	}
	if m.Stored.After(s.Last) {
		s.Last = m.Stored
	}
}

// watchTopology finds shards that are added to those that are read, until ctx ends.
func (r *Recorder) watchTopology(ctx context.Context, sources []*source) {
	known := map[int]bool{}
	for _, s := range sources {
		known[s.shard] = true
	}
	for bus.Sleep(ctx, r.topologyTime) {
		asking, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
		added, err := r.addedShards(asking, known)
		cancel()
		if err != nil {
			r.Log.Warn("cannot look for added shards; retrying", "err", err)
			continue
		}
		if len(added) == 0 {
			continue
		}
		select {
		case r.found <- added:
		case <-ctx.Done():
			return
		}
		for _, s := range added {
			r.Log.Info("shard added", "shard", s.shard)
			known[s.shard] = true
		}
	}
}

// addedShards returns sources for the shards that are not known. They begin with the first message of their streams.
func (r *Recorder) addedShards(ctx context.Context, known map[int]bool) (added []*source, err error) {
	t, err := bus.ReadTopology(ctx, r.JetStream)
	if err != nil {
		return nil, err
	}
	for _, shard := range t.Numbers() {
		if known[shard] {
			continue
		}
		info, err := r.lookUp(ctx, shard)
		if err != nil {
			return nil, err
		}
		s := r.newSource(shard, info, t.Shards)
		s.position = before(info)
		s.stream.After, s.stream.State = s.position, recording.KnowledgeNone
		added = append(added, s)
	}
	return added, nil
}

func (r *Recorder) lookUp(ctx context.Context, shard int) (*jetstream.StreamInfo, error) {
	jsStream, err := r.JetStream.Stream(ctx, schema.StreamName(shard))
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", schema.StreamName(shard), err)
	}
	return jsStream.CachedInfo(), nil
}

// before returns the sequence before the oldest message of a stream.
func before(info *jetstream.StreamInfo) uint64 {
	return info.State.FirstSeq - min(info.State.FirstSeq, 1)
}

func streamsOf(sources []*source) (all []recording.Stream) {
	for _, s := range sources {
		all = append(all, s.stream)
	}
	return all
}
