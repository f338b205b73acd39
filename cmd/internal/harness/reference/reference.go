// Package reference computes the state of an undisturbed reader of a shard's stream. Programs that disturb consumers
// compare the committed states with it.
package reference

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer"
	checkpoint "github.com/gputap/gputap/consumer/shard"
)

// State runs a new reader up to a message, for a minute at most, and returns the state of its fold.
func State(ctx context.Context, reader *consumer.Reader, fold consumer.Stateful, sequence uint64) ([]byte, error) {
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- reader.Run(reading) }()
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := reader.WaitFor(waiting, sequence)
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return nil, err
	}
	return reader.State(fold)
}

// Folded returns nil if every fold has committed the end of a shard's stream.
func Folded(ctx context.Context, js jetstream.JetStream, shard int) error {
	for _, entry := range fold.All() {
		saved, err := checkpoint.Saved(ctx, js, entry.Name(), shard)
		if err != nil {
			return err
		}
		options := consumer.ReaderOptions{Shard: shard}
		reader := consumer.NewReader(options, js, entry.New(), slog.New(slog.DiscardHandler))
		if end, err := reader.Folded(ctx, saved.Sequence); err != nil || !end {
			return errors.Join(err, fmt.Errorf("%s has committed shard %d up to %d only", entry.Name(), shard,
				saved.Sequence))
		}
	}
	return nil
}
