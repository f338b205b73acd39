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
func (c *Consumer) WaitFor(ctx context.Context, sequence uint64) error {
	idle := false // nothing came for a while: time to ask
	for {
		applied, moved := c.watch()
		if applied >= sequence || (idle && c.nothingLeft(ctx, applied, sequence)) {
			return nil
		}
		select {
		case <-moved:
			idle = false
		case <-time.After(pollInterval):
			idle = true
		case <-ctx.Done():
			return fmt.Errorf("consumer %s stands at %d of %d: %w", c.fold.Name(), applied, sequence, ctx.Err())
		}
	}
}

func (c *Consumer) watch() (applied uint64, moved <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved == nil {
		c.moved = make(chan struct{})
	}
	return c.applied, c.moved
}

// nothingLeft asks the bus whether whatever is stored behind applied, up to sequence, is for other
// folds. The count of pending messages that JetStream gives would not do: it follows the stream with
// a delay.
func (c *Consumer) nothingLeft(ctx context.Context, applied, sequence uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	jsStream, err := c.js.Stream(ctx, schema.StreamName(c.opts.Shard))
	if err != nil || jsStream.CachedInfo().State.LastSeq < sequence {
		return false
	}
	for _, subject := range c.filters() {
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
func (c *Consumer) advance(sequence uint64) {
	c.applied = sequence
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

func (c *Consumer) setApplied(sequence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(sequence)
}
