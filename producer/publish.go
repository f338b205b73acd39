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
	ackTimeout = 5 * time.Second // least wait for an ack
	longestAck = time.Minute
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// publisher sends one kind's batches in order, one in flight, each until it is acked. A batch whose ack was lost is
// sent again; consumers drop the second by its seq.
type publisher struct {
	js      jetstream.JetStream
	spool   *spool
	route   *router
	kind    schema.Kind
	metrics *metrics
	log     *slog.Logger

	took time.Duration // from the last successful publish to its ack
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

// subjectOf returns the subject of a batch. The host may have had another name in an earlier run.
func (p *publisher) subjectOf(batch *encoded, to *route) string {
	var b schema.Batch
	if !batch.Earlier || schema.NewDecoder().Decode(batch.Data, &b) != nil {
		return to.subjects[p.kind]
	}
	return schema.Subject(to.topology.Shard(b.Cluster, b.Host), b.Cluster, b.Host, p.kind)
}

// deliver retries with back-off until NATS acks, each time to the shard that the host has by then. It waits longer for
// the ack with each try, so that a slow NATS server does not get copies for ever. It fails only with ctx.
func (p *publisher) deliver(ctx context.Context, batch *encoded) error {
	failing, unanswered := false, time.Duration(0)
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		to, err := p.route.current(ctx)
		if err != nil {
			return err
		}
		start, subject := time.Now(), p.subjectOf(batch, to)
		err = p.publish(ctx, subject, batch.Data, min(max(ackTimeout, 2*p.took, unanswered), longestAck))
		to.published(err)
		if err == nil {
			p.took = time.Since(start)
			p.metrics.acked(&batch.Batch, p.took)
			if failing {
				p.log.Info("publish succeeded again", "subject", subject, "seq", batch.Seq)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if tooLarge(err) { // a retry cannot succeed
			p.metrics.batchErrors.Add(1)
			p.log.Error("NATS rejects messages of this size; batch lost",
				"subject", subject, "seq", batch.Seq, "bytes", len(batch.Data), "err", err,
				"remedy", "set producer.batch_max_bytes below max_payload of the NATS server")
			p.spool.reject(batch)
			return nil
		}
		p.metrics.batchErrors.Add(1)
		if !failing {
			failing = true
			p.log.Warn("publish failed; retrying", "subject", subject, "seq", batch.Seq, "err", err)
		}
		if rejectsShard(err) {
			p.route.requestRefresh()
		}
		if unanswered += time.Since(start); !errors.Is(err, context.DeadlineExceeded) {
			unanswered = 0
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-to.replaced:
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

var errNoStream = errors.New("publish: no JetStream stream takes this subject, or it has no leader; " +
	"check with gputap stream info, create it with gputap stream init")

func (p *publisher) publish(ctx context.Context, subject string, data []byte, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.metrics.inFlight.Add(1)
	defer p.metrics.inFlight.Add(-1)
	_, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}, jetstream.WithRetryAttempts(0))
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		return errNoStream
	}
	if err != nil {
		return explain(p.js.Conn(), subject, err)
	}
	return nil
}
