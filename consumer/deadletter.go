package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

const (
	deadLetterTimeout = 2 * time.Second // of one try
	// Servers of a cluster need up to ten seconds to agree who leads a stream.
	deadLetterPatience = 30 * time.Second
	maxErrorHeader     = 512
)

// deadLetter copies a message that is of no use to where a person can look at it.
func (r *Reader) deadLetter(m jetstream.Msg, meta *jetstream.MsgMetadata, cause error) {
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
	err := r.insist(letter, id)
	r.unkept = err != nil
	switch {
	case err == nil:
		r.unacked = time.Time{}
	case errors.Is(err, context.DeadlineExceeded):
		r.unacked = time.Now()
	}
	about := []any{"subject", m.Subject(), "stream", meta.Stream, "seq", meta.Sequence.Stream, "err", cause}
	if err == nil {
		r.warn("batch is of no use: copied to the dead letters", about...)
	} else {
		r.warn("batch is of no use, and not kept as a dead letter", append(about, "not_kept", err)...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.stats.DeadLettersLost++
		return
	}
	r.stats.DeadLetters++
}

// errUnanswered: the letter was not sent.
var errUnanswered = errors.New("one before had no answer")

// insist tries until a dead letter is kept or refused. The message stays where it is while the bus is away: nothing else comes
// then, and a checkpoint that is behind it would hide it. A bus that is there is given some time, once until it takes a letter
// again, and after a letter without an answer no other is tried for that time: a fold does not wait for its waste.
func (r *Reader) insist(letter *nats.Msg, id string) error {
	conn := r.js.Conn()
	if conn.IsConnected() && time.Since(r.unacked) < deadLetterPatience {
		return errUnanswered
	}
	var until time.Time
	for {
		before, said := conn.Stats().Reconnects, conn.LastError()
		err := r.keep(letter, id)
		if err == nil || r.refusesLetters(err, letter.Subject, said) {
			return err
		}
		for !conn.IsConnected() {
			if conn.IsClosed() || !r.pause() {
				return err
			}
		}
		away, noStream := conn.Stats().Reconnects != before, errors.Is(err, jetstream.ErrNoStreamResponse)
		if away || until.IsZero() && !noStream && !r.unkept {
			until = time.Now().Add(deadLetterPatience)
		}
		if time.Now().After(until) || !r.pause() {
			return err
		}
	}
}

// pause waits a little, and says whether Run goes on.
func (r *Reader) pause() bool {
	select {
	case <-time.After(pollInterval):
		return true
	case <-r.over:
		return false
	}
}

// refusesLetters says that another try would end as this one did. before is what the connection had last said before it.
func (r *Reader) refusesLetters(err error, subject string, before error) bool {
	const unavailable = 503 // for now
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return refused.Code != unavailable
	}
	said := r.js.Conn().LastError() // what may not be published has no answer
	return errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(said, nats.ErrPermissionViolation) && !errors.Is(said, before) && strings.Contains(said.Error(), `"`+subject+`"`)
}

// errNoLeader says that the dead letters have a stream, of which nobody answers for now.
var errNoLeader = errors.New("the stream of the dead letters has no leader")

// keep publishes a dead letter, creating their stream when there is none yet. The stream passes over an id that it has.
func (r *Reader) keep(letter *nats.Msg, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadLetterTimeout)
	defer cancel()
	_, err := r.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	config := deadLetterConfig(0)
	_, created := r.js.CreateStream(ctx, config)
	if errors.Is(created, jetstream.ErrStreamNameAlreadyInUse) { // with other limits, which stay
		return errNoLeader
	}
	if created != nil {
		return fmt.Errorf("create JetStream stream %s: %w", config.Name, created)
	}
	_, err = r.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	return err
}
