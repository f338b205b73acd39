package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/cmd/internal/undisturbed"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// views are what the consumers' saved states say, as the next instance takes them up.
type views struct {
	leak   map[schema.ProcessID]*leak.Process
	launch map[schema.ProcessID]*launch.Process
}

// takeUp reads the saved states as an instance that comes next would.
func takeUp(ctx context.Context, f *fleet, v *views) error {
	t, err := f.topology(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"leak", "launch"} {
		c := consumer.New(consumer.Options{Instance: "verify"}, f.js, undisturbed.Folds[name], slog.New(slog.DiscardHandler))
		reading, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- c.Run(reading) }()
		err := cluster.Until(ctx, patience, func() error {
			have := map[int]consumer.Stateful{}
			c.Each(func(shard int, fold consumer.Stateful) { have[shard] = fold })
			for _, shard := range t.Numbers() {
				if have[shard] == nil {
					return fmt.Errorf("%s of shard %d is not taken up", name, shard)
				}
				v.add(have[shard])
			}
			return nil
		})
		stop()
		if err := errors.Join(err, <-done); err != nil {
			return err
		}
	}
	return nil
}

func (v *views) add(fold consumer.Stateful) {
	switch fold := fold.(type) {
	case *leak.Tracker:
		for _, p := range fold.Report().Processes {
			v.leak[p.ID] = &p
		}
	case *launch.Histogram:
		for _, p := range fold.Report() {
			v.launch[p.ID] = &p
		}
	}
}

func (f *fleet) noDeadLetters(ctx context.Context) error {
	letters, err := f.js.Stream(ctx, schema.DeadLetterStream)
	if err == nil && letters.CachedInfo().State.Msgs > 0 {
		err = fmt.Errorf("there are %d dead letters", letters.CachedInfo().State.Msgs)
	}
	return err
}

// undisturbed holds that what was saved of shard 0, which all releases have written, is what one reader of today's makes of
// it, and that such a reader finds nothing missing or useless there.
func (f *fleet) undisturbed(ctx context.Context) error {
	var faults []error
	size := 0
	for _, name := range consumers {
		saved, err := consumer.Saved(ctx, f.js, name, 0)
		if err != nil {
			return err
		}
		fold := undisturbed.Folds[name]()
		reader := consumer.NewReader(consumer.ReaderOptions{}, f.js, fold, slog.New(slog.DiscardHandler))
		state, err := undisturbed.State(ctx, reader, fold, saved.Sequence)
		if err != nil {
			return err
		}
		if !bytes.Equal(saved.State, state) {
			faults = append(faults, fmt.Errorf("%s of shard 0: what is saved (%d bytes) is not what an undisturbed reader makes of it (%d bytes)", name, len(saved.State), len(state)))
		}
		if n := reader.Stats(); n.Missing+n.Invalid+n.Refused+n.Unknown+n.DeadLetters+n.Retention > 0 {
			faults = append(faults, fmt.Errorf("%s of shard 0: %+v", name, n))
		}
		size += len(state)
	}
	if len(faults) == 0 {
		f.say("%d of %d states of shard 0 equal those of an undisturbed reader (%d bytes); 0 batches missing, 0 invalid, 0 dead letters", len(consumers), len(consumers), size)
	}
	return errors.Join(faults...)
}
