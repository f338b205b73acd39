package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Publisher publishes a recording to a bus.
type Publisher struct {
	*player
	js       jetstream.JetStream
	log      *slog.Logger
	origins  *origins
	first    schema.Topology // when the replay began; it assigns messages to lanes
	topology atomic.Pointer[schema.Topology]
	lanes    map[laneID]chan publication

	publishing context.Context
	abort      context.CancelCauseFunc
	running    sync.WaitGroup

	acked, retries atomic.Uint64
	failing        atomic.Int64 // messages in flight whose last publish failed
}

// laneID names messages of which one is in flight at a time.
type laneID struct {
	shard int
	kind  string
}

// publication is a message on its way.
type publication struct {
	from *origin
	data []byte
}

const (
	queued     = 16 // messages of a lane
	ackTimeout = 5 * time.Second
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// NewPublisher reads the recording once, and refuses a bus that has batches of the same runs.
func NewPublisher(ctx context.Context, f *File, pace Pace, js jetstream.JetStream, log *slog.Logger) (*Publisher,
	error) {
	p := &Publisher{js: js, log: log, lanes: map[laneID]chan publication{}}
	p.player = newPlayer(f, pace, p.send)
	if err := p.readTopology(ctx); err != nil {
		return nil, err
	}
	p.first = *p.topology.Load()
	var err error
	if p.origins, err = readOrigins(ctx, f); err != nil {
		return nil, err
	}
	return p, p.origins.refuseKnown(ctx, js, p.first)
}

func (p *Publisher) readTopology(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	t, err := bus.ReadTopology(ctx, p.js)
	if err == nil {
		p.topology.Store(&t)
	}
	return err
}

// Published are the figures of a Publisher.
type Published struct {
	Acked, Retries uint64
	Events         uint64 // of the recording
}

// Published returns the figures so far. Any goroutine may call it at any time.
func (p *Publisher) Published() Published {
	return Published{p.acked.Load(), p.retries.Load(), p.origins.events}
}

// Run publishes until every message is acked, or until ctx ends: then messages that were queued are not published.
func (p *Publisher) Run(ctx context.Context) error {
	p.publishing, p.abort = context.WithCancelCause(ctx)
	defer p.abort(nil)
	err := p.run(p.publishing)
	for _, lane := range p.lanes {
		close(lane)
	}
	p.running.Wait()
	if cause := context.Cause(p.publishing); cause != nil && ctx.Err() == nil {
		return cause
	}
	return err
}

// send queues messages. It waits while their lanes are full.
func (p *Publisher) send(messages []recording.Message) error {
	for i := range messages {
		m := &messages[i]
		o := p.origins.bySubject[m.Subject]
		select {
		case p.lane(o) <- publication{o, bytes.Clone(m.Data)}:
		case <-p.publishing.Done():
			return nil // Run returns the cause
		}
	}
	return nil
}

// lane returns the lane of an origin, which stays the same if the topology changes.
func (p *Publisher) lane(o *origin) chan<- publication {
	id := laneID{p.first.Shard(o.cluster, o.host), o.kind}
	lane := p.lanes[id]
	if lane == nil {
		lane = make(chan publication, queued)
		p.lanes[id] = lane
		p.running.Go(func() {
			for one := range lane {
				if err := p.deliver(&one); err != nil {
					p.abort(err)
				}
			}
		})
	}
	return lane
}

var errNoStream = errors.New("no stream accepts this subject; check with gputap stream info")

// deliver publishes a message until it is acked. It fails if the end has come, or if another try cannot succeed.
func (p *Publisher) deliver(one *publication) error {
	failed := false
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		if p.publishing.Err() != nil {
			return p.publishing.Err()
		}
		err := p.publish(one)
		switch {
		case err == nil:
			if failed && p.failing.Add(-1) == 0 {
				p.log.Info("publishing again")
			}
			p.acked.Add(1)
			return nil
		case tooLarge(err):
			return fmt.Errorf("publish: the batch of %d bytes is too large: raise max_payload of the NATS server and "+
				"max_msg_size of its streams", len(one.data))
		case p.js.Conn().IsClosed():
			return fmt.Errorf("publish: %w", err)
		}
		if !failed && p.failing.Add(1) == 1 {
			p.log.Warn("publish failed; retrying", "host", one.from.host, "err", err)
		}
		failed = true
		if !bus.Sleep(p.publishing, wait/2+rand.N(wait/2)) {
			return p.publishing.Err()
		}
		p.retries.Add(1)
		_ = p.readTopology(p.publishing) // the shard may have been sealed
	}
}

// publish publishes a message once, to the shard that its host has now.
func (p *Publisher) publish(one *publication) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.publishing), ackTimeout)
	defer cancel()
	shard := p.topology.Load().Shard(one.from.cluster, one.from.host)
	_, err := p.js.Publish(ctx, one.from.subject(shard), one.data, jetstream.WithRetryAttempts(0))
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		return errNoStream
	}
	return err
}

func tooLarge(err error) bool {
	const exceedsMaximum = 10054 // JSStreamMessageExceedsMaximumErr: the stream's own limit
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && refused.ErrorCode == exceedsMaximum
}
