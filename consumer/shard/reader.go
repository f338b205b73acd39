package shard

import (
	"context"
	"time"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/snapshot"
)

// Reader folds the batches of one shard; consumer.Reader does it. Its owner first gives it a state, with Resume or with
// Restore and Inherit, then calls Run, and saves its state meanwhile.
type Reader interface {
	// Restore loads a saved state. If hosts is not nil, Restore loads only the hosts that hosts accepts and nothing
	// that belongs to no host, and may be called again. After an error the reader is useless. The error wraps
	// snapshot.ErrVersion if a newer program saved the state.
	Restore(state []byte, hosts func(cluster, host string) bool) error
	// Resume makes Run read on after the position of the restored state, if the stream is still the same.
	Resume(at bus.Position)
	// Inherit says whether the restored states contain all that earlier generations held of the shard's hosts. If not,
	// the first batches of a host may have gone there unseen.
	Inherit(complete bool)
	// Run folds until ctx ends.
	Run(ctx context.Context) error
	// Save appends the state to w and returns up to where it goes, and for how long folding had to wait for the copy.
	Save(w *snapshot.Writer) (at bus.Position, copying time.Duration, err error)
	// Position returns up to where the stream was read, after the current batch.
	Position() bus.Position
	// Applied returns the sequence of the position without waiting for the current batch.
	Applied() uint64
}
