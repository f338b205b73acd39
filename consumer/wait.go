package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

const pollInterval = 100 * time.Millisecond

// WaitFor returns when everything that the stream stored up to that JetStream sequence was read: applied, dropped,
// copied to the dead letters, or skipped because the fold does not take its kind.
func (r *Reader) WaitFor(ctx context.Context, sequence uint64) error {
	for before, first := uint64(0), true; ; first = false {
		applied, reached := r.watch(sequence)
		idle := applied == before && !first // no message came for a while: time to ask NATS
		if applied >= sequence || (idle && r.nothingLeft(ctx, applied, sequence)) {
			return nil
		}
		before = applied
		select {
		case <-reached:
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("wait for consumer %s to read message %d: it has read %d: %w", r.fold.Name(), sequence,
				applied,
				ctx.Err())
		}
	}
}

// Folded reports whether the shard's stream now holds nothing for this fold after a message.
func (r *Reader) Folded(ctx context.Context, sequence uint64) (bool, error) {
	jsStream, err := r.js.Stream(ctx, schema.StreamName(r.opts.Shard))
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	return bus.NothingPending(ctx, r.js.Conn(), jsStream, bus.Subjects(r.opts.Shard, r.kinds), sequence)
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

// nothingLeft asks NATS whether the messages after applied, up to sequence, are all for other folds. JetStream's count
// of pending messages cannot tell: it is updated with a delay.
func (r *Reader) nothingLeft(ctx context.Context, applied, sequence uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	jsStream, err := r.js.Stream(ctx, schema.StreamName(r.opts.Shard))
	if err != nil || jsStream.CachedInfo().State.LastSeq < sequence {
		return false
	}
	for _, subject := range bus.Subjects(r.opts.Shard, r.kinds) {
		next, err := jsStream.GetMsg(ctx, applied+1, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil || next.Sequence <= sequence {
			return false
		}
	}
	return true
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
