package main

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/cmd/internal/undisturbed"
)

const (
	maxBytes = 1 << 30 // the streams let go of nothing
	shards   = 4       // to which the bus is changed at the end
)

// begin is a fleet of the oldest release with programs on its host, one of which holds memory until the end.
func begin(ctx context.Context, f *fleet, r releases) (err error) {
	if err := f.setUp(ctx, r.old, "--replicas", "3", "--max-bytes", strconv.Itoa(maxBytes)); err != nil {
		return err
	}
	if err := f.startOldConsumers(ctx, r.old); err != nil {
		return err
	}
	f.programs = startPrograms(filepath.Join(f.dir, "programs"))
	if err := f.startProducer(ctx, r.old); err != nil {
		return err
	}
	if f.held, err = f.programs.hold(ctx); err != nil {
		return err
	}
	return f.wait(ctx)
}

// consumersFirst is the order that docs/consumers.md asks for, over a release between.
func consumersFirst(ctx context.Context, f *fleet, r releases) error {
	return inTurn(ctx,
		func() error { return begin(ctx, f, r) },
		func() error { return f.setUp(ctx, r.middle) },
		func() error { return f.startConsumers(ctx, r.middle) },
		func() error { return f.endOldConsumers(ctx) },
		func() error { return f.wait(ctx) },
		func() error { return f.setUp(ctx, r.today) },
		func() error { return f.changeConsumers(ctx, r.today) },
		func() error { return f.wait(ctx) },
		func() error { return f.changeProducer(ctx, r.middle) },
		func() error { return f.wait(ctx) },
		func() error { return f.changeProducer(ctx, r.today) },
		func() error { f.programs.simple.Store(false); return f.wait(ctx) },
		func() error { return f.setUp(ctx, r.today, "--shards", strconv.Itoa(shards)) },
		func() error { return f.moved(ctx) },
		func() error { return f.wait(ctx) },
		func() error { return f.rest(ctx) },
	)
}

// producerFirst has the oldest consumers read what today's producer writes.
func producerFirst(ctx context.Context, f *fleet, r releases) error {
	return inTurn(ctx,
		func() error { return begin(ctx, f, r) },
		func() error { return f.setUp(ctx, r.today) },
		func() error { return f.changeProducer(ctx, r.today) },
		func() error { f.programs.simple.Store(false); return f.wait(ctx) },
		func() error { return f.wait(ctx) },
		func() error { return f.startConsumers(ctx, r.today) },
		func() error { return f.endOldConsumers(ctx) },
		func() error { return f.wait(ctx) },
		func() error { return f.rest(ctx) },
	)
}

func inTurn(ctx context.Context, steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// rest lets programs, producer and consumers end in order, with everything told, folded and saved.
func (f *fleet) rest(ctx context.Context) error {
	if err := f.programs.letGo(f.held); err != nil {
		return err
	}
	if err := f.stopProducer(); err != nil {
		return err
	}
	if err := f.programs.end(); err != nil {
		return err
	}
	numbers, err := f.shards(ctx)
	if err != nil {
		return err
	}
	for _, shard := range numbers {
		if err := cluster.Until(ctx, patience, func() error { return undisturbed.Folded(ctx, f.js, shard) }); err != nil {
			return err
		}
	}
	for _, p := range slices.Backward(f.consumers) {
		if err := f.end(p); err != nil {
			return err
		}
	}
	f.say("%d programs have ended; all is told, folded and saved", len(f.programs.all))
	return nil
}
