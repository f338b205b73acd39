package producer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

const (
	ackTimeout = 5 * time.Second // least time that an ack is waited for
	longestAck = time.Minute
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// publisher sends one kind's batches in order, one in flight, each until it is acked. A batch that
// was stored but whose ack was lost is sent again: consumers know it by its seq.
type publisher struct {
	js      jetstream.JetStream
	spool   *spool
	route   *router
	kind    schema.Kind
	metrics *metrics
	log     *slog.Logger

	took time.Duration // until the last batch was acked, in the try that was
}

// run returns when ctx ends.
func (p *publisher) run(ctx context.Context) {
	for {
		batch, err := p.spool.next(ctx, p.kind)
		if err != nil {
			return
		}
		if err := p.deliver(ctx, batch); err != nil {
			return
		}
		p.spool.acked(p.kind)
	}
}

// subjectOf is where a batch belongs: those of an earlier run may be of a host that had another name.
func (p *publisher) subjectOf(batch *encoded, w *route) string {
	if from := batch.from; from != nil {
		of := from.origin
		return schema.Subject(w.topology.Shard(of.cluster, of.host), of.cluster, of.host, p.kind)
	}
	return w.subjects[p.kind]
}

// deliver tries until the bus acks, waiting longer from try to try, and where the bus has the host's shard by
// then. A bus whose acks come late is given more time with each try: what it has stored is not sent to it for ever. It
// fails only with ctx.
func (p *publisher) deliver(ctx context.Context, batch *encoded) error {
	away, unanswered := false, time.Duration(0)
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		way, err := p.route.current(ctx)
		if err != nil {
			return err
		}
		start, subject := time.Now(), p.subjectOf(batch, way)
		err = p.publish(ctx, subject, batch.data, min(max(ackTimeout, 2*p.took, unanswered), longestAck))
		way.published(err)
		if err == nil {
			p.took = time.Since(start)
			p.metrics.acked(p.kind, batch, p.took)
			if away {
				p.log.Info("bus is back", "subject", subject, "seq", batch.seq)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if tooLarge(err) { // however often it is tried
			p.metrics.batchErrors.Add(1)
			p.log.Error("the bus takes no message of this size: the batch is lost", "subject", subject, "seq", batch.seq,
				"bytes", len(batch.data), "remedy", "set producer.batch_max_bytes below max_payload of the NATS server", "err", err)
			p.spool.refused(batch)
			return nil
		}
		p.metrics.batchErrors.Add(1)
		if !away {
			away = true
			p.log.Warn("publish failed, batch is kept and tried again", "subject", subject, "seq", batch.seq, "err", err)
		}
		if rejectsShard(err) {
			p.route.requestRefresh()
		}
		if unanswered += time.Since(start); !errors.Is(err, context.DeadlineExceeded) {
			unanswered = 0
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-way.replaced:
			wait = firstRetry
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func tooLarge(err error) bool {
	const exceedsMaximum = 10054 // JSStreamMessageExceedsMaximumErr: the stream's own limit
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && refused.ErrorCode == exceedsMaximum
}

var errNoStream = errors.New("nobody takes this subject: its stream has no leader now, or there is none (gputap stream info tells, gputap stream init creates it)")

func (p *publisher) publish(ctx context.Context, subject string, data []byte, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.metrics.inFlight.Add(1)
	defer p.metrics.inFlight.Add(-1)
	_, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}, jetstream.WithRetryAttempts(0))
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		return errNoStream
	}
	return err
}
