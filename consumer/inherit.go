package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// errNotDrained: the generation before is not closed and folded to its end yet.
var errNotDrained = errors.New("the shards of the generation before are not folded to their end yet")

// inherit gives a new shard the states of its hosts, which the shards of the generation before hold. That generation is
// closed, so what its shards have folded to their end is all there is of it.
func (o *owned) inherit(ctx context.Context, reader *Reader, fold Stateful) error {
	if len(o.topology.Previous) == 0 || o.shard < o.topology.First {
		return nil
	}
	before := o.topology.Previous[len(o.topology.Previous)-1]
	states := make([][]byte, 0, before.Shards)
	for _, shard := range before.Numbers() {
		store := checkpoints{js: o.js, fold: o.store.fold, shard: shard}
		m, err := store.latest(ctx)
		if err != nil {
			return err
		}
		drained, err := reader.drained(ctx, shard, m.Sequence)
		if err != nil {
			return err
		}
		if !drained {
			return fmt.Errorf("shard %d: %w", shard, errNotDrained)
		}
		state, err := store.load(ctx, &m, waitForNewer*o.leases.ttl)
		if err != nil {
			return err
		}
		states = append(states, state)
	}
	hosts := func(cluster, host string) bool { return o.topology.Shard(cluster, host) == o.shard }
	for _, state := range states {
		if err := reader.restore(state, fold, hosts); err != nil {
			return err
		}
	}
	return nil
}

// drained reports whether a shard is closed and holds nothing for this fold behind a message. A stream that is
// gone holds nothing.
func (r *Reader) drained(ctx context.Context, shard int, sequence uint64) (bool, error) {
	jsStream, err := r.js.Stream(ctx, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	if !jsStream.CachedInfo().Config.Sealed {
		return false, nil
	}
	return r.nothingBehind(ctx, jsStream, shard, sequence)
}

// Folded reports whether the shard's stream holds nothing for this fold behind a message now.
func (r *Reader) Folded(ctx context.Context, sequence uint64) (bool, error) {
	jsStream, err := r.js.Stream(ctx, schema.StreamName(r.opts.Shard))
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	return r.nothingBehind(ctx, jsStream, r.opts.Shard, sequence)
}

func (r *Reader) nothingBehind(ctx context.Context, jsStream jetstream.Stream, shard int, sequence uint64) (bool, error) {
	for _, subject := range r.wanted(shard) {
		_, err := jsStream.GetMsg(ctx, sequence+1, jetstream.WithGetMsgSubject(subject))
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, err
		}
	}
	return true, nil
}
