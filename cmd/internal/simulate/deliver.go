package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const (
	mostInFlight = 64 << 20 // bytes that are made and not acked
	ackTimeout   = 5 * time.Second
	firstRetry   = 50 * time.Millisecond
	lastRetry    = 5 * time.Second
)

// flow is the origin of batches that are published in order.
type flow struct {
	cluster, host string
	kind          schema.Kind
}

var errNoStream = errors.New(
	"no stream accepts this subject: the stream has no leader, or does not exist (check with gputap stream info; " +
		"create it with gputap stream init)")

// delivery is one batch in flight.
type delivery struct {
	*Simulator
	js      jetstream.JetStream
	from    flow
	data    []byte
	subject string
	ack     jetstream.PubAckFuture
	err     error // of the publish
}

// send publishes the batch. The batches of a host leave in the order of their first sends.
func (d *delivery) send() {
	d.subject = d.shards.subject(d.from)
	d.ack, d.err = d.js.PublishAsync(d.subject, d.data, jetstream.WithRetryAttempts(0))
}

// result returns nil once the batch is stored.
func (d *delivery) result(ctx context.Context) error {
	if d.err != nil {
		return d.err
	}
	select {
	case <-d.ack.Ok():
		return nil
	case err := <-d.ack.Err():
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			return errNoStream
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish waits for the ack and sends the batch again, with back-off, until it is acked. It fails if ctx ends, or if
// another try cannot succeed.
func (d *delivery) finish(ctx context.Context) error {
	failed := false
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := d.result(ctx)
		switch {
		case err == nil:
			if failed && d.failing.Add(-1) == 0 { // until then a part of the shards is unreachable
				d.fleet.Log.Info("publishing again", "subject", d.subject)
			}
			return nil
		case tooLarge(err):
			return fmt.Errorf("publish: the batch of %d bytes is too large: raise max_payload of the NATS server and "+
				"max_msg_size of its streams", len(d.data))
		case d.js.Conn().IsClosed():
			return fmt.Errorf("publish: %w", err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if !failed && d.failing.Add(1) == 1 {
			d.fleet.Log.Warn("publish failed; retrying", "subject", d.subject, "err", err)
		}
		failed = true
		d.shards.refresh(ctx)
		if !eventbus.Sleep(ctx, wait/2+rand.N(wait/2)) {
			return ctx.Err()
		}
		d.retries.Add(1)
		d.send()
	}
}

func tooLarge(err error) bool {
	const exceedsMaximum = 10054 // JSStreamMessageExceedsMaximumErr: the stream's own limit
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && refused.ErrorCode == exceedsMaximum
}

// room limits the bytes in flight.
type room struct {
	mu    sync.Mutex
	freed sync.Cond
	bytes int
}

func (r *room) reserve(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.bytes > 0 && r.bytes+bytes > mostInFlight {
		r.freed.Wait()
	}
	if r.bytes += bytes; r.bytes < mostInFlight {
		r.freed.Signal() // the next one may also fit
	}
}

func (r *room) release(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes -= bytes
	r.freed.Signal()
}

const (
	topologyTime  = 5 * time.Second // timeout of a read
	topologyPause = time.Second     // between two reads
)

// shards holds the topology.
type shards struct {
	js      jetstream.JetStream
	current atomic.Pointer[schema.Topology]
	reading sync.Mutex
	last    time.Time // end of the last read
}

// read reads the topology. Without a stored topology there is one shard, number 0.
func (s *shards) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, topologyTime)
	defer cancel()
	t, err := eventbus.ReadTopology(ctx, s.js)
	if errors.Is(err, eventbus.ErrNoTopology) {
		t, err = schema.Topology{Generation: 1, Shards: 1}, nil
	}
	if err == nil {
		s.current.Store(&t)
	}
	return err
}

func (s *shards) subject(of flow) string {
	return schema.Subject(s.current.Load().Shard(of.cluster, of.host), of.cluster, of.host, of.kind)
}

// refresh reads the topology again, unless another goroutine does so or did so a moment ago.
func (s *shards) refresh(ctx context.Context) {
	if !s.reading.TryLock() {
		return
	}
	defer s.reading.Unlock()
	if time.Since(s.last) < topologyPause {
		return
	}
	_ = s.read(ctx) // the next failure reads again
	s.last = time.Now()
}
