package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

const pollInterval = 100 * time.Millisecond

// WaitFor returns when everything that the stream stored up to that JetStream sequence has been
// dealt with: applied, dropped, dead-lettered, or of a kind that the fold does not take.
func (r *Reader) WaitFor(ctx context.Context, sequence uint64) error {
	for before, first := uint64(0), true; ; first = false {
		applied, reached := r.watch(sequence)
		idle := applied == before && !first // nothing came for a while: time to ask
		if applied >= sequence || (idle && r.nothingLeft(ctx, applied, sequence)) {
			return nil
		}
		before = applied
		select {
		case <-reached:
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("consumer %s stands at %d of %d: %w", r.fold.Name(), applied, sequence, ctx.Err())
		}
	}
}

// watch gives a channel that is closed when a sequence is reached, or another that somebody waits for.
func (r *Reader) watch(sequence uint64) (applied uint64, reached <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reached == nil {
		r.reached, r.awaited = make(chan struct{}), sequence
	}
	r.awaited = min(r.awaited, sequence)
	return r.applied, r.reached
}

// nothingLeft asks the bus whether whatever is stored behind applied, up to sequence, is for other
// folds. The count of pending messages that JetStream gives would not do: it follows the stream with
// a delay.
func (r *Reader) nothingLeft(ctx context.Context, applied, sequence uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	jsStream, err := r.js.Stream(ctx, schema.StreamName(r.opts.Shard))
	if err != nil || jsStream.CachedInfo().State.LastSeq < sequence {
		return false
	}
	for _, subject := range r.wanted(r.opts.Shard) {
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

// advance is called with mu held.
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
