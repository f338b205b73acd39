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

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const (
	deadLetterTimeout = 2 * time.Second // of one try
	// Servers of a cluster need up to ten seconds to elect the leader of a stream.
	deadLetterPatience = 30 * time.Second
	maxErrorHeader     = 512
)

var (
	// errUnanswered: the dead letter was not sent.
	errUnanswered = errors.New("an earlier dead letter had no answer")
	// errNoLeader: the dead letters have a stream, but nobody answers for it now.
	errNoLeader = errors.New("the stream of the dead letters has no leader")
)

// deadLetter copies a useless message to the dead letters, where a person can look at it.
func (r *Reader) deadLetter(m jetstream.Msg, meta *jetstream.MsgMetadata, cause error) {
	reason := cause.Error()
	letter := &nats.Msg{
		Subject: schema.DeadLetterSubject(r.fold.Name(), r.opts.Shard), Data: m.Data(),
		Header: nats.Header{
			"Gputap-Error": {reason[:min(len(reason), maxErrorHeader)]}, "Gputap-Subject": {m.Subject()},
			"Gputap-Stream": {meta.Stream}, "Gputap-Seq": {strconv.FormatUint(meta.Sequence.Stream, 10)},
		},
	}
	// After a crash the next owner reads the message again. In a recreated stream the same sequence has another time.
	id := fmt.Sprintf("%s.%s.%d.%d", letter.Subject, meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano())
	err := r.storeLetter(letter, id)
	r.letterFailed = err != nil
	attrs := []any{"subject", m.Subject(), "stream", meta.Stream, "seq", meta.Sequence.Stream, "err", cause}
	count := &r.stats.DeadLetters
	if err == nil {
		r.unansweredAt = time.Time{}
		r.warn("useless batch copied to the dead letters", attrs...)
	} else {
		if errors.Is(err, context.DeadlineExceeded) {
			r.unansweredAt = time.Now()
		}
		count = &r.stats.DeadLettersLost
		r.warn("useless batch skipped; it could not be copied to the dead letters", append(attrs, "copy_err", err)...)
	}
	r.mu.Lock()
	*count++
	r.mu.Unlock()
}

// storeLetter tries until the dead letter is stored or refused. While NATS is unreachable the message waits: no other
// message comes then, and a checkpoint after it would hide it. While NATS is reachable and does not store letters,
// only the first letter gets deadLetterPatience, and after a letter without an answer no other is tried for that time:
// useless messages must not hold up the fold.
func (r *Reader) storeLetter(letter *nats.Msg, id string) error {
	conn := r.js.Conn()
	if conn.IsConnected() && time.Since(r.unansweredAt) < deadLetterPatience {
		return errUnanswered
	}
	var until time.Time
	for {
		reconnects, lastError := conn.Stats().Reconnects, conn.LastError()
		err := r.publishLetter(letter, id)
		if err == nil || r.isFinal(err, letter.Subject, lastError) {
			return err
		}
		for !conn.IsConnected() {
			if conn.IsClosed() || !r.pause() {
				return err
			}
		}
		reconnected := conn.Stats().Reconnects != reconnects
		noStream := errors.Is(err, jetstream.ErrNoStreamResponse)
		if reconnected || until.IsZero() && !noStream && !r.letterFailed {
			until = time.Now().Add(deadLetterPatience)
		}
		if time.Now().After(until) || !r.pause() {
			return err
		}
	}
}

// pause waits a little. It returns false if Run is to end.
func (r *Reader) pause() bool {
	select {
	case <-time.After(pollInterval):
		return true
	case <-r.stopping:
		return false
	}
}

// isFinal reports whether another try would fail in the same way. before is the connection's last error before the try.
func (r *Reader) isFinal(err error, subject string, before error) bool {
	const unavailable = 503 // for now
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return refused.Code != unavailable
	}
	last := r.js.Conn().LastError() // NATS does not answer a publish without permission
	return errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(last, nats.ErrPermissionViolation) && !errors.Is(last, before) &&
			strings.Contains(last.Error(), `"`+subject+`"`)
}

// publishLetter publishes a dead letter. It creates the stream if it does not exist. The stream drops an id that it
// has.
func (r *Reader) publishLetter(letter *nats.Msg, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadLetterTimeout)
	defer cancel()
	_, err := r.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	err = bus.EnsureDeadLetters(ctx, r.js)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // it exists, with limits that stay
		return errNoLeader
	}
	if err != nil {
		return err
	}
	_, err = r.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	return err
}
