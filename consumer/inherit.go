package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// errNotDrained: the generation before is not closed and folded to its end yet.
var errNotDrained = errors.New("the shards of the generation before are not folded to their end yet")

const noShard = -1

// inherit gives a shard the states of its hosts, which the shards of the generation before hold, and reports whether there is
// one. That generation is closed, so what its shards have folded to their end is all there is of it; each of them, too, has first
// inherited, and saved that, unless there is no generation before it.
func (o *owned) inherit(ctx context.Context, reader *Reader, fold Stateful) (has bool, err error) {
	all := o.topology.Generations()
	i := slices.IndexFunc(all, func(g schema.Topology) bool { return g.Has(o.shard) })
	if i < 0 {
		return false, nil
	}
	if i == 0 {
		reader.place.whole = all[0].Generation == 1
		reader.place.cut = !reader.place.whole
		return false, nil
	}
	own, before := all[i], all[i-1]
	whole := own.Generation == before.Generation+1
	stores, manifests := make([]checkpoints, before.Shards), make([]manifest, before.Shards)
	for n, shard := range before.Numbers() {
		store, m := &stores[n], &manifests[n]
		*store = checkpoints{js: o.js, fold: o.store.fold, shard: shard}
		if *m, err = store.latest(ctx); err != nil {
			return false, err
		}
		drained, err := reader.drained(ctx, shard, m)
		if err != nil {
			return false, err
		}
		if !drained || i > 1 && !m.saved() {
			o.waitsFor = shard
			return false, fmt.Errorf("shard %d: %w", shard, errNotDrained)
		}
		if whole && m.Created.IsZero() { // nothing was read, so that no state says what was not there any more
			if whole = m.saved() || before.Generation == 1; whole {
				whole, err = reader.blank(ctx, shard)
			}
			if err != nil {
				return false, err
			}
		}
	}
	hosts := func(cluster, host string) bool { return own.Shard(cluster, host) == o.shard }
	select { // one state of one shard at a time is in memory twice
	case o.inheriting <- struct{}{}:
		defer func() { <-o.inheriting }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	for n := range stores {
		state, err := stores[n].load(ctx, &manifests[n], waitForNewer*o.leases.ttl)
		if err != nil {
			return false, err
		}
		if err := reader.restore(state, fold, hosts); isNewer(err) {
			return false, err
		} else if err != nil {
			return false, fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	reader.place.whole = whole
	reader.place.cut = reader.place.cut || !whole
	return true, nil
}

// takenUp reports whether all of a fold's shards of a generation have saved what they inherited.
func takenUp(ctx context.Context, js jetstream.JetStream, fold string, g *schema.Topology) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	store := checkpoints{js: js, fold: fold}
	for _, store.shard = range g.Numbers() {
		if m, err := store.latest(ctx); err != nil || !m.saved() {
			return false
		}
	}
	return true
}

// passOn finishes the closed generations that the next one has taken over: nobody needs to own their shards again.
func (c *Consumer) passOn(ctx context.Context) {
	all := c.topology.Generations()
	for i := range all[:len(all)-1] {
		closed := all[i].Numbers()
		if slices.ContainsFunc(closed, func(shard int) bool { return !c.finished[shard] }) && takenUp(ctx, c.js, c.fold, &all[i+1]) {
			for _, shard := range closed {
				c.finished[shard] = true
			}
		}
	}
}

// drained reports whether a shard is closed and holds nothing for this fold but what a checkpoint has. A stream that is
// gone holds nothing; one that was written anew since is to be read from its beginning.
func (r *Reader) drained(ctx context.Context, shard int, at *manifest) (bool, error) {
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
	if drained, err := r.nothingBehind(ctx, jsStream, shard, at.Sequence); err != nil || !drained || at.Created.IsZero() {
		return drained, err
	}
	return sameStream(ctx, jsStream, at)
}

// blank reports whether a shard's stream is there and never held anything.
func (r *Reader) blank(ctx context.Context, shard int) (bool, error) {
	jsStream, err := r.js.Stream(ctx, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	return jsStream.CachedInfo().State.LastSeq == 0, nil
}

// Folded reports whether the shard's stream holds nothing for this fold behind a message now.
func (r *Reader) Folded(ctx context.Context, sequence uint64) (bool, error) {
	jsStream, err := r.js.Stream(ctx, schema.StreamName(r.opts.Shard))
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	return r.nothingBehind(ctx, jsStream, r.opts.Shard, sequence)
}

// nothingBehind asks the stream's leader, whose answer jsStream was made of, and replicas, which may be behind, only where the leader
// cannot say: a reader of heartbeats alone does not come to each message, nobody to one that was removed.
func (r *Reader) nothingBehind(ctx context.Context, jsStream jetstream.Stream, shard int, sequence uint64) (bool, error) {
	state, wanted := jsStream.CachedInfo().State, r.wanted(shard)
	if sequence >= state.LastSeq || state.Msgs == 0 {
		return true, nil
	}
	if len(wanted) > 1 && state.NumDeleted == 0 {
		return false, nil
	}
	for _, subject := range wanted {
		_, err := jsStream.GetMsg(ctx, sequence+1, jetstream.WithGetMsgSubject(subject))
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, err
		}
	}
	return true, nil
}
