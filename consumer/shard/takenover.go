package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// errNotSaved: a shard has no saved state.
var errNotSaved = errors.New("no state is saved")

// takenOver reports whether all of a fold's shards of a generation have saved their inherited states. If a request is
// not answered, it returns an error.
func takenOver(ctx context.Context, js jetstream.JetStream, fold string, g *schema.Topology) (bool, error) {
	states, err := js.Stream(ctx, schema.StateStream)
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	err = concurrently(ctx, g.Shards, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
		defer cancel()
		c := store{js: js, jsStream: states, fold: fold, shard: g.First + i}
		m, err := c.latest(ctx)
		if err == nil && !m.saved() {
			err = errNotSaved
		}
		return err
	})
	if errors.Is(err, errNotSaved) {
		return false, nil
	}
	return err == nil, err
}

// finishTakenOver finds out which closed generations the next one has taken over: nobody needs to own their shards
// again. It returns false if NATS does not answer in time. Any other error counts as no: then the shards are owned until
// they turn out to be folded.
func (g *Group) finishTakenOver(ctx context.Context) (answered bool) {
	ctx, cancel := g.leases.request(ctx)
	defer cancel()
	all := g.topology.Generations()
	for i, closed := range all[:len(all)-1] {
		if !slices.ContainsFunc(closed.Numbers(), func(shard int) bool { return g.stateOf(shard) != finished }) {
			continue
		}
		done, err := takenOver(ctx, g.js, g.opts.Fold, &all[i+1])
		if err != nil {
			g.log.Debug("cannot check whether a generation was taken over", "generation", closed.Generation, "err", err)
			return !errors.Is(err, context.DeadlineExceeded)
		}
		if done {
			for _, shard := range closed.Numbers() {
				g.apply(shard, event{what: wasTakenOver})
			}
		}
	}
	return true
}
