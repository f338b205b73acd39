package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// errNotDrained: the generation before is still open, or is not folded to its end.
var errNotDrained = errors.New("the generation before is not folded to its end yet")

const noShard = -1

// inherit restores the states of the shard's hosts from the shards of the generation before, and reports whether there
// is such a generation. It must be closed and folded to its end, so that its checkpoints contain all of it. Each of
// its shards must have inherited and saved that first, unless it is the oldest generation.
func (o *owner) inherit(ctx context.Context, reader Reader) (has bool, err error) {
	all := o.topology.Generations()
	i := slices.IndexFunc(all, func(g schema.Topology) bool { return g.Has(o.shard) })
	if i < 0 {
		return false, nil
	}
	if i == 0 {
		reader.Inherit(all[0].Generation == 1)
		return false, nil
	}
	own, before := all[i], all[i-1]
	stores, manifests, complete, err := o.drainedStates(ctx, &before, i == 1)
	if err != nil {
		return false, err
	}
	select { // one shard at a time: a state is in memory twice while it is restored
	case o.restoring <- struct{}{}:
		defer func() { <-o.restoring }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	for n := range stores {
		state, err := stores[n].load(ctx, &manifests[n], o.opts.rebuildAfter(o.leases.ttl))
		if err != nil {
			return false, err
		}
		hosts := func(cluster, host string) bool { // a batch may have arrived on the wrong shard
			return own.Shard(cluster, host) == o.shard && before.Shard(cluster, host) == before.First+n
		}
		if err := reader.Restore(state, hosts); isNewer(err) {
			return false, err
		} else if err != nil {
			return false, fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	reader.Inherit(complete && own.Generation == before.Generation+1)
	return true, nil
}

// drainedStates returns the checkpoints of a closed generation if all its shards are folded to their end, and whether
// they cover all that the generation ever held.
func (o *owner) drainedStates(ctx context.Context, g *schema.Topology, oldest bool) (
	stores []store, manifests []manifest, complete bool, err error,
) {
	stores, manifests, complete = make([]store, g.Shards), make([]manifest, g.Shards), true
	var gone []int
	for n, shard := range g.Numbers() {
		c, m := &stores[n], &manifests[n]
		*c = store{js: o.store.js, fold: o.opts.Fold, shard: shard}
		if *m, err = c.latest(ctx); err != nil {
			return nil, nil, false, err
		}
		done, jsStream, err := drained(ctx, o.store.js, shard, m.Position)
		if err != nil {
			return nil, nil, false, err
		}
		if !done || !oldest && !m.saved() {
			o.waitsFor = shard
			return nil, nil, false, fmt.Errorf("shard %d: %w", shard, errNotDrained)
		}
		if jsStream == nil {
			gone = append(gone, shard)
		}
		// nothing was read, so no state tells whether retention had removed messages
		if m.Created.IsZero() {
			neverUsed := jsStream != nil && jsStream.CachedInfo().State.LastSeq == 0
			complete = complete && neverUsed && (m.saved() || g.Generation == 1)
		}
	}
	if len(gone) > 0 {
		o.log.Warn("streams of the generation before do not exist; batches that were not folded are lost", "of_shards",
			gone)
	}
	return stores, manifests, complete, nil
}

// drained reports whether a shard is closed and holds no message after a checkpoint. A missing stream, which comes as
// nil, is empty. A stream that was recreated must be read from its beginning.
func drained(ctx context.Context, js jetstream.JetStream, shard int, at bus.Position) (
	done bool, jsStream jetstream.Stream, err error,
) {
	jsStream, err = js.Stream(ctx, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, nil, nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("look up stream: %w", err)
	}
	if !jsStream.CachedInfo().Config.Sealed {
		return false, jsStream, nil
	}
	done, err = bus.NothingPending(ctx, jsStream, at.Sequence)
	if done && !at.Created.IsZero() {
		done, err = bus.SameStream(ctx, jsStream, at)
	}
	return done, jsStream, err
}

// errNotSaved: a shard has no saved state.
var errNotSaved = errors.New("no state is saved")

// takenOver reports whether all of a fold's shards of a generation have saved their inherited states. If a request is
// not answered within patience, it returns an error.
func takenOver(
	ctx context.Context, js jetstream.JetStream, fold string, g *schema.Topology, patience time.Duration,
) (bool, error) {
	request, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	states, err := js.Stream(request, schema.StateStream)
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	err = concurrently(ctx, g.Shards, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
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
// again. It returns false if NATS does not answer in time. Any other error counts as no: then the shards are owned
// until they turn out to be folded.
func (g *Group) finishTakenOver(ctx context.Context) (answered bool) {
	all := g.topology.Generations()
	for i, closed := range all[:len(all)-1] {
		if !slices.ContainsFunc(closed.Numbers(), func(shard int) bool { return g.stateOf(shard) != finished }) {
			continue
		}
		done, err := takenOver(ctx, g.js, g.opts.Fold, &all[i+1], g.leases.ttl/4)
		if err != nil {
			g.log.Debug("cannot ask for the takeover of a generation", "generation", closed.Generation, "err", err)
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
