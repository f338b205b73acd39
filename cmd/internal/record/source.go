package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

const (
	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
	retry         = time.Second
	// longestTransit is how long messages may be on the way without an arrival. Reading them again is harmless.
	longestTransit = 3 * time.Second
	checkInterval  = time.Second           // between two looks at the stream
	lastChecks     = 50 * time.Millisecond // the same, where the end is near
	mostPull       = 8 << 20
	leastPull      = 2 << 20  // above the largest message that a server accepts by default
	mostInFlight   = 32 << 20 // of all shards, which share a connection
)

// source reads the messages of one shard, in order and each once.
type source struct {
	shard    int
	stream   recording.Stream
	position uint64 // no message up to here is still to be read
	lacks    string // why the state at the beginning is partial; "": it is not, or that is unknown
	js       jetstream.JetStream
	log      *slog.Logger
	filter   string // subject of the messages that NATS sends
	pull     int    // bytes

	take     func(ctx context.Context, m *recording.Message) error
	until    time.Time       // end before the message that was stored at this time; zero: never
	stopping <-chan struct{} // closed: read the messages that are stored now, and end; nil: never
	target   uint64          // end behind this sequence; 0: none
	removed  func(messages uint64)

	// of the JetStream consumer at hand
	received       uint64 // messages
	receivedBefore uint64 // when the source last looked
	receivedAt     time.Time
	quietAt        uint64 // end of the stream when nothing was pending at the last look; 0: something was
	ended          bool
}

func (r *Recorder) newSource(shard int, info *jetstream.StreamInfo, shards int) *source {
	s := &source{
		shard: shard, js: r.JetStream, log: r.Log.With("shard", shard), until: r.Until, stopping: r.stopping,
		filter: filterSubject(shard, &r.Selection, true), removed: func(n uint64) { r.removed.Add(n) },
		pull:   max(min(mostPull, mostInFlight/max(shards, 1)), leastPull),
		stream: recording.Stream{Shard: shard, Name: info.Config.Name, Created: info.Created},
	}
	s.take = func(ctx context.Context, m *recording.Message) error {
		if !r.Selection.Matches(m.Subject) || r.jobs != nil && !r.jobs.Matches(m) {
			return nil
		}
		select {
		case r.in <- m:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s
}

// filterSubject returns one subject that covers the selection. With several, the server searches its subjects for each
// message. Without kinds it covers all kinds.
func filterSubject(shard int, s *recording.Selection, kinds bool) string {
	cluster, host, kind := "*", "*", "*"
	if s.Cluster != "" {
		cluster = schema.Token(s.Cluster)
	}
	if s.Host != "" {
		host = schema.Token(s.Host)
	}
	if kinds && len(s.Kinds) == 1 {
		kind = s.Kinds[0].String()
	}
	return fmt.Sprintf("gputap.v1.ev.%d.%s.%s.%s", shard, cluster, host, kind)
}

// run reads until the source has ended or ctx ends. It waits for NATS. An error means that the stream is another one.
func (s *source) run(ctx context.Context) error {
	logged := false
	for !s.ended {
		err := s.fetch(ctx)
		switch {
		case s.ended || ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrOtherStream) || errors.Is(err, nats.ErrConnectionClosed):
			return err
		case errors.Is(err, errReset):
			logged = false
			continue
		case errors.Is(err, jetstream.ErrStreamNotFound) && s.gone(ctx):
			s.log.Warn("the stream was removed; its recording ends", "stream", s.stream.Name, "seq", s.position)
			return nil
		}
		if !logged {
			logged = true
			s.log.Warn("cannot read the stream; retrying", "stream", s.stream.Name, "err", err)
		}
		if !bus.Sleep(ctx, retry) {
			return nil
		}
	}
	return nil
}

// gone reports whether the topology has no such shard any more.
func (s *source) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	t, err := bus.ReadTopology(ctx, s.js)
	_, found := t.Find(s.shard)
	return err == nil && !found
}

var (
	// errReset means that a JetStream consumer cannot continue. The next one begins behind the last message.
	errReset = errors.New("the fetch was reset")
	// ErrOtherStream means that messages of the stream cannot follow those that were read.
	ErrOtherStream = errors.New("the stream is another one")
)

// checkStream refuses a stream that is not the one that was read.
func (s *source) checkStream(info *jetstream.StreamInfo) error {
	switch {
	case !info.Created.Equal(s.stream.Created):
		return fmt.Errorf("%w: %s was created at %s, and the recorded one at %s: record into another file",
			ErrOtherStream, s.stream.Name, info.Created.UTC().Format(time.RFC3339),
			s.stream.Created.UTC().Format(time.RFC3339))
	case info.State.LastSeq < s.position:
		return fmt.Errorf("%w: %s ends with message %d, and message %d is recorded: record into another file",
			ErrOtherStream, s.stream.Name, info.State.LastSeq, s.position)
	}
	return nil
}

// fetch reads with one JetStream consumer until the source has ended, the consumer is useless, or ctx ends.
func (s *source) fetch(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	jsStream, err := s.js.Stream(asking, s.stream.Name)
	if err != nil {
		return fmt.Errorf("look up the stream: %w", err)
	}
	if err := s.checkStream(jsStream.CachedInfo()); err != nil {
		return err
	}
	from, err := createConsumer(asking, jsStream, s.shard, jetstream.ConsumerConfig{
		FilterSubject: s.filter, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.position + 1,
	})
	if err != nil {
		return err
	}
	defer deleteConsumer(jsStream, from)
	s.received, s.receivedBefore, s.receivedAt, s.quietAt = 0, 0, time.Now(), 0
	messages, failed, stop := make(chan jetstream.Msg, queued), make(chan error, 1), make(chan struct{})
	consuming, err := from.Consume(func(m jetstream.Msg) {
		select {
		case messages <- m:
		case <-stop:
		}
	}, jetstream.PullMaxBytes(s.pull), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { interrupted(err, failed) }))
	if err != nil {
		return fmt.Errorf("start fetching: %w", err)
	}
	defer func() {
		close(stop)
		consuming.Stop()
		<-consuming.Closed()
	}()
	return s.read(ctx, messages, failed, consuming.Closed(), func() error { return s.look(ctx, jsStream, from) })
}

// createConsumer creates a JetStream consumer of a unique name, as ordered ones are: without acks, and in memory.
func createConsumer(ctx context.Context, jsStream jetstream.Stream, shard int, c jetstream.ConsumerConfig) (
	jetstream.Consumer, error) {
	id := nuid.Next()
	c.Name = fmt.Sprintf("record-%03d-%s", shard, id[len(id)-8:]) // as gputap stream info reads names
	c.AckPolicy, c.MemoryStorage, c.Replicas, c.InactiveThreshold = jetstream.AckNonePolicy, true, 1, 5*time.Minute
	made, err := jsStream.CreateConsumer(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("create a JetStream consumer: %w", err)
	}
	return made, nil
}

// deleteConsumer deletes a JetStream consumer before it would expire.
func deleteConsumer(jsStream jetstream.Stream, c jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = jsStream.DeleteConsumer(ctx, c.CachedInfo().Name) // it may be gone already
}

// interrupted reports that a JetStream consumer is gone. The library handles all other interruptions.
func interrupted(err error, failed chan<- error) {
	gone := errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, jetstream.ErrConsumerDeleted)
	if gone || errors.Is(err, nats.ErrNoResponders) {
		select {
		case failed <- errReset:
		default:
		}
	}
}

// read takes messages until the source has ended. look looks at the stream, whose end is not a message.
func (s *source) read(ctx context.Context, messages <-chan jetstream.Msg, failed <-chan error,
	closed <-chan struct{}, look func() error) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	stopping := s.stopping
	if s.target > 0 || !s.until.IsZero() && s.until.Before(time.Now()) {
		tick.Reset(lastChecks)
	}
	for !s.ended {
		var err error
		select {
		case m := <-messages:
			err = s.pass(ctx, m)
		case <-tick.C:
			err = look()
		case <-stopping:
			stopping = nil
			tick.Reset(lastChecks)
			err = look()
		case err = <-failed:
		case <-closed:
			err = nats.ErrConnectionClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pass takes one message.
func (s *source) pass(ctx context.Context, m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("read the metadata of a message: %w", err)
	}
	if s.received++; meta.Sequence.Consumer != s.received {
		return errReset // messages of this JetStream consumer were lost on the way
	}
	sequence := meta.Sequence.Stream
	if s.target > 0 && sequence > s.target || !s.until.IsZero() && !meta.Timestamp.Before(s.until) {
		s.ended = true
		return nil
	}
	if s.isWhole() && sequence > s.position+1 {
		s.removed(sequence - s.position - 1)
	}
	err = s.take(ctx, &recording.Message{
		Shard: s.shard, Sequence: sequence, Stored: meta.Timestamp, Subject: m.Subject(), Data: m.Data(),
	})
	if err == nil {
		s.position = sequence
		s.ended = sequence == s.target
	}
	return err
}

// isWhole reports whether NATS sends all messages of the stream: then a hole in the sequences was removed.
func (s *source) isWhole() bool {
	return s.filter == filterSubject(s.shard, &recording.Selection{}, false)
}

// look finds out whether messages were removed, and whether the source has ended.
func (s *source) look(ctx context.Context, jsStream jetstream.Stream, from jetstream.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	info, err := jsStream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at the stream: %w", err)
	}
	if err := s.checkStream(info); err != nil {
		return err
	}
	state, err := from.Info(ctx) // after the stream: nothing pending means up to its end
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return errReset
	}
	if err != nil {
		return fmt.Errorf("look at the JetStream consumer: %w", err)
	}
	if state.Delivered.Consumer != s.received { // messages are on the way, or were lost there
		if s.received != s.receivedBefore {
			s.receivedBefore, s.receivedAt = s.received, time.Now()
		}
		if time.Since(s.receivedAt) > longestTransit {
			return errReset
		}
		return nil
	}
	if first := info.State.FirstSeq; first > s.position+1 { // of a selection, some of these may not be selected
		s.removed(first - s.position - 1)
		s.position = first - 1
	}
	s.position = max(s.position, state.Delivered.Stream) // up to there, NATS has delivered or skipped all
	// The server counts a stored message as pending a moment after its ack. So nothing pending is true only if the last
	// message was delivered, or if the next look finds the same.
	if last := info.State.LastSeq; state.NumPending > 0 {
		s.quietAt = 0
	} else if s.quietAt == last || state.Delivered.Stream >= last {
		s.position = max(s.position, last)
	} else {
		s.quietAt = last
	}
	s.conclude(info)
	return nil
}

// conclude ends the source if nothing follows.
func (s *source) conclude(info *jetstream.StreamInfo) {
	stopping := false
	select {
	case <-s.stopping: // never, if it is nil
		stopping = true
	default:
	}
	if stopping && s.target == 0 {
		s.target = max(info.State.LastSeq, 1)
	}
	switch end := s.position >= info.State.LastSeq; {
	case s.target > 0 && (s.position >= s.target || info.State.LastSeq == 0):
		s.ended = true
	case end && info.Config.Sealed:
		s.ended = true
	case end && !s.until.IsZero() && !info.TimeStamp.Before(s.until):
		s.ended = true
	}
}
