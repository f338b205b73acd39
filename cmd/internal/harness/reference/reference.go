// Package reference computes the state of an undisturbed reader of a shard's stream. Programs that disturb consumers
// compare the committed states with it.
package reference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer"
	checkpoint "github.com/gputap/gputap/consumer/shard"
)

// readLimit is how long a reader may take to read one shard.
const readLimit = time.Minute

// Reader is a new reader that has read a shard up to the message of a committed state.
type Reader struct {
	*consumer.Reader
	Fold       fold.Fold
	StateBytes int
}

// Compare reads a shard anew up to the committed state of a fold. If that state differs from the reader's, it writes
// both into files that begin with path, and returns an error beside the reader.
func Compare(ctx context.Context, js jetstream.JetStream, entry fold.Entry, shard int, path string) (*Reader, error) {
	saved, err := checkpoint.Saved(ctx, js, entry.Name(), shard)
	if err != nil {
		return nil, err
	}
	r := newReader(js, entry, shard)
	if err := r.readUntil(ctx, saved.Sequence); err != nil {
		return nil, err
	}
	state, err := r.State(r.Fold)
	if err != nil {
		return nil, err
	}
	r.StateBytes = len(state)
	if !bytes.Equal(saved.State, state) {
		err = errors.Join(
			fmt.Errorf("%s, shard %d: the committed state differs from an undisturbed reader's: compare %s.*",
				entry.Name(), shard, path),
			os.WriteFile(path+".committed", saved.State, 0o644), os.WriteFile(path+".undisturbed", state, 0o644))
	}
	return r, err
}

func newReader(js jetstream.JetStream, entry fold.Entry, shard int) *Reader {
	state := entry.New()
	options := consumer.ReaderOptions{Shard: shard}
	return &Reader{Reader: consumer.NewReader(options, js, state, slog.New(slog.DiscardHandler)), Fold: state}
}

func (r *Reader) readUntil(ctx context.Context, sequence uint64) error {
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.Run(reading) }()
	waiting, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	err := r.WaitFor(waiting, sequence)
	stop()
	return errors.Join(err, <-done)
}

// AllFolded returns nil if folds have committed the ends of the streams of all shards.
func AllFolded(ctx context.Context, js jetstream.JetStream, shards int, entries ...fold.Entry) error {
	for shard := range shards {
		for _, entry := range entries {
			saved, err := checkpoint.Saved(ctx, js, entry.Name(), shard)
			if err != nil {
				return err
			}
			if end, err := newReader(js, entry, shard).Folded(ctx, saved.Sequence); err != nil || !end {
				return errors.Join(err, fmt.Errorf("%s has committed shard %d up to %d only", entry.Name(), shard,
					saved.Sequence))
			}
		}
	}
	return nil
}
