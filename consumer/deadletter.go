package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

const (
	deadLetterTimeout = 2 * time.Second
	maxErrorHeader    = 512
)

// deadLetter copies a message that is of no use to where a person can look at it. It tries once: a
// fold does not wait for its waste.
func (r *Reader) deadLetter(m jetstream.Msg, meta *jetstream.MsgMetadata, cause error) {
	r.warn("batch is of no use: copied to the dead letters", "subject", m.Subject(), "stream", meta.Stream,
		"seq", meta.Sequence.Stream, "err", cause)
	reason := cause.Error()
	letter := &nats.Msg{
		Subject: schema.DeadLetterSubject(r.fold.Name(), r.opts.Shard), Data: m.Data(),
		Header: nats.Header{
			"Gputap-Error": {reason[:min(len(reason), maxErrorHeader)]}, "Gputap-Subject": {m.Subject()},
			"Gputap-Stream": {meta.Stream}, "Gputap-Seq": {strconv.FormatUint(meta.Sequence.Stream, 10)},
		},
	}
	// After a crash the batch comes again, to whoever owns the shard then; another message of that number has another time.
	id := fmt.Sprintf("%s.%s.%d.%d", letter.Subject, meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano())
	err := r.keep(letter, id)
	if err != nil {
		r.warn("dead letter not kept", "subject", letter.Subject, "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.stats.DeadLettersLost++
		return
	}
	r.stats.DeadLetters++
}

// keep publishes a dead letter, creating their stream when there is none yet. The stream passes over an id that it has.
func (r *Reader) keep(letter *nats.Msg, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadLetterTimeout)
	defer cancel()
	_, err := r.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	if err := ensureStream(ctx, r.js, deadLetterConfig(0)); err != nil {
		return err
	}
	_, err = r.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	return err
}
