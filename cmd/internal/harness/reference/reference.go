// Package undisturbed is the ruler of programs that hurt or replace consumers: what one reader to which nothing happens
// makes of a shard's stream.
package reference

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
)

// Folds are made as the commands make them without a file, variables and flags.
var Folds = map[string]func() consumer.Stateful{
	"leak": func() consumer.Stateful {
		return leak.New(leak.Config{KeepEnded: config.DefaultLeakCommand().Leak.KeepEnded})
	},
	"launch": func() consumer.Stateful {
		c := config.DefaultLaunchCommand().Launch
		return launch.New(launch.Config{Keep: c.Keep, MaxKernels: c.MaxKernels})
	},
	"bandwidth": func() consumer.Stateful {
		return bandwidth.New(bandwidth.Config{Keep: config.DefaultBandwidthCommand().Bandwidth.Keep})
	},
	"anomaly": func() consumer.Stateful {
		c := config.DefaultAnomalyCommand().Anomaly
		return anomaly.New(anomaly.Config{Warmup: c.Warmup, AllocSizeCooldown: c.AllocSizeCooldown, OOMCooldown: c.OOMCooldown})
	},
}

const patience = time.Minute

// State has a new reader read up to a message, and gives the state of its fold there.
func State(ctx context.Context, reader *consumer.Reader, fold consumer.Stateful, sequence uint64) ([]byte, error) {
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- reader.Run(reading) }()
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := reader.WaitFor(waiting, sequence)
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return nil, err
	}
	return reader.State(fold)
}

// Folded is nil when the committed state of every fold goes to the end of a shard's stream.
func Folded(ctx context.Context, js jetstream.JetStream, shard int) error {
	for name, fold := range Folds {
		saved, err := consumer.Saved(ctx, js, name, shard)
		if err != nil {
			return err
		}
		reader := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, js, fold(), slog.New(slog.DiscardHandler))
		if end, err := reader.Folded(ctx, saved.Sequence); err != nil || !end {
			return errors.Join(err, fmt.Errorf("%s of shard %d stands at %d", name, shard, saved.Sequence))
		}
	}
	return nil
}
