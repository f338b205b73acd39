package segment

import (
	"context"
	"errors"
	"time"
)

// ErrSilent means that a disk did not answer in time.
var ErrSilent = errors.New("the disk does not answer")

// Turn is held by a function that waits for a disk: one that is silent gets no second request.
type Turn chan struct{}

// NewTurn returns one that nobody holds.
func NewTurn() Turn { return make(Turn, 1) }

// Take runs f in turn, in another goroutine. It returns before f does when ctx ends, or with ErrSilent after a timeout.
func (t Turn) Take(ctx context.Context, timeout time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrSilent)
	defer cancel()
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ended := make(chan error, 1)
	go func() {
		defer func() { <-t }()
		ended <- f()
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
