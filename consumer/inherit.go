package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

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
	stores, manifests, whole, err := o.foldedToEnd(ctx, reader, &before, i == 1)
	if err != nil {
		return false, err
	}
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
		hosts := func(cluster, host string) bool { // a batch may have come on a shard that is not its host's
			return own.Shard(cluster, host) == o.shard && before.Shard(cluster, host) == before.First+n
		}
		if err := reader.restore(state, fold, hosts); isNewer(err) {
			return false, err
		} else if err != nil {
			return false, fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	reader.place.whole = whole && own.Generation == before.Generation+1
	reader.place.cut = reader.place.cut || !reader.place.whole
	return true, nil
}

// foldedToEnd gives the checkpoints of a closed generation when all its shards are folded to their end, and whether they tell of all that
// it ever held.
func (o *owned) foldedToEnd(ctx context.Context, reader *Reader, g *schema.Topology, oldest bool) (stores []checkpoints, manifests []manifest, whole bool, err error) {
	stores, manifests, whole = make([]checkpoints, g.Shards), make([]manifest, g.Shards), true
	var gone []int
	for n, shard := range g.Numbers() {
		store, m := &stores[n], &manifests[n]
		*store = checkpoints{js: o.js, fold: o.store.fold, shard: shard}
		if *m, err = store.latest(ctx); err != nil {
			return nil, nil, false, err
		}
		drained, isGone, err := reader.drained(ctx, shard, m)
		if err != nil {
			return nil, nil, false, err
		}
		if !drained || !oldest && !m.saved() {
			o.waitsFor = shard
			return nil, nil, false, fmt.Errorf("shard %d: %w", shard, errNotDrained)
		}
		if isGone {
			gone = append(gone, shard)
		}
		if whole && m.Created.IsZero() { // nothing was read, so that no state says what was not there any more
			blank, err := reader.blank(ctx, shard)
			if err != nil {
				return nil, nil, false, err
			}
			whole = blank && (m.saved() || g.Generation == 1)
		}
	}
	if len(gone) > 0 {
		o.log.Warn("streams of the generation before are gone: what was not folded of them is lost", "of_shards", gone)
	}
	return stores, manifests, whole, nil
}

const askedAtOnce = 16

// errNotSaved: a shard has no state.
var errNotSaved = errors.New("nothing is saved")

// takenUp reports whether all of a fold's shards of a generation have saved what they inherited. An answer that does not come is an
// error.
func takenUp(ctx context.Context, js jetstream.JetStream, fold string, g *schema.Topology) (bool, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	states, err := js.Stream(ctx, schema.StateStream)
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	shards := make(chan int, g.Shards)
	for _, shard := range g.Numbers() {
		shards <- shard
	}
	close(shards)
	var asking sync.WaitGroup
	for range min(askedAtOnce, g.Shards) {
		asking.Go(func() {
			for shard := range shards {
				if ctx.Err() != nil {
					return
				}
				if err := hasSaved(ctx, &checkpoints{js: js, jsStream: states, fold: fold, shard: shard}); err != nil {
					stop(err)
				}
			}
		})
	}
	asking.Wait()
	err = context.Cause(ctx)
	if errors.Is(err, errNotSaved) {
		return false, nil
	}
	return err == nil, err
}

func hasSaved(ctx context.Context, store *checkpoints) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := store.latest(ctx)
	if err == nil && !m.saved() {
		err = errNotSaved
	}
	return err
}

// passed are the shards of closed generations that the next one has taken over, in a bus of that birth and topology.
type passed struct {
	born     time.Time
	topology schema.Topology
	shards   []int
}

// passOn begins to ask which closed generations the next one has taken over: nobody needs to own their shards again. A bus may be
// far, and who joins must not wait for it.
func (c *Consumer) passOn(ctx context.Context) {
	all := c.topology.Generations()
	var open []int // generations that are not finished
	for i := range all[:len(all)-1] {
		if slices.ContainsFunc(all[i].Numbers(), func(shard int) bool { return !c.finished[shard] }) {
			open = append(open, i)
		}
	}
	c.asked = c.asked || len(open) == 0
	if c.passing != nil || len(open) == 0 {
		return
	}
	answer := make(chan passed, 1)
	c.passing = answer
	p := passed{born: c.born, topology: c.topology}
	go func() {
		for _, i := range open {
			taken, err := takenUp(ctx, c.js, c.fold, &all[i+1])
			if err != nil {
				c.log.Debug("not known whether a generation was taken over", "generation", all[i].Generation, "err", err)
				break
			}
			if taken {
				p.shards = append(p.shards, all[i].Numbers()...)
			}
		}
		answer <- p
	}()
}

// finishPassed takes the answer, if there is one. That it is not known is one too.
func (c *Consumer) finishPassed(ctx context.Context) {
	select {
	case p := <-c.passing:
		c.passing = nil
		if p.born.Equal(c.born) && p.topology.Equal(c.topology) {
			c.asked = true
			for _, shard := range p.shards {
				c.finished[shard] = true
			}
		}
	default:
	}
	if !c.asked {
		c.passOn(ctx)
	}
}

// drained reports whether a shard is closed and holds nothing for this fold but what a checkpoint has. A stream that is
// gone holds nothing; one that was written anew since is to be read from its beginning.
func (r *Reader) drained(ctx context.Context, shard int, at *manifest) (drained, gone bool, err error) {
	jsStream, err := r.js.Stream(ctx, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, true, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("look up stream: %w", err)
	}
	if !jsStream.CachedInfo().Config.Sealed {
		return false, false, nil
	}
	if drained, err = r.nothingBehind(ctx, jsStream, shard, at.Sequence); drained && !at.Created.IsZero() {
		drained, err = sameStream(ctx, jsStream, at)
	}
	return drained, false, err
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

// nothingBehind asks the stream's leader, whose answer jsStream was made of. Whoever reads several kinds comes to each message that was
// not removed.
func (r *Reader) nothingBehind(ctx context.Context, jsStream jetstream.Stream, shard int, sequence uint64) (bool, error) {
	state, wanted := jsStream.CachedInfo().State, r.wanted(shard)
	switch {
	case sequence >= state.LastSeq || state.Msgs == 0:
		return true, nil
	case len(wanted) == 1:
		return r.noneBehind(ctx, jsStream, wanted[0], sequence)
	case state.NumDeleted == 0:
		return false, nil
	}
	info, err := jsStream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	next := max(sequence+1, info.State.FirstSeq)
	for _, removed := range slices.Sorted(slices.Values(info.State.Deleted)) {
		if removed == next {
			next++
		}
	}
	return next > info.State.LastSeq, nil
}

const mostSubjects = 512 // JetStream speaks of 1,024 in one answer

// noneBehind is nothingBehind for a reader of one kind. The leader cannot be asked for a message by all who may read it: a replica is
// asked for the last one of each host, and says in the same answer how far it is itself. Where there are none, or too many for one
// answer, the leader says first which hosts there are.
func (r *Reader) noneBehind(ctx context.Context, jsStream jetstream.Stream, subject string, sequence uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	none, err := r.noneOf(ctx, jsStream, []string{subject}, sequence)
	if !errors.Is(err, errBehind) {
		return none, err
	}
	info, err := jsStream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(info.State.Subjects)), mostSubjects) {
		if none, err := r.noneOf(ctx, jsStream, some, sequence); err != nil || !none {
			return false, err
		}
	}
	return true, nil
}

func (r *Reader) noneOf(ctx context.Context, jsStream jetstream.Stream, subjects []string, sequence uint64) (bool, error) {
	info := jsStream.CachedInfo()
	asked, err := json.Marshal(map[string]any{"multi_last": subjects, "seq": sequence + 1, "batch": 1})
	if err != nil {
		return false, err
	}
	answer, err := r.js.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"DIRECT.GET."+info.Config.Name, asked)
	if err != nil {
		return false, fmt.Errorf("ask %s for its end: %w", info.Config.Name, err)
	}
	switch status := answer.Header.Get("Status"); status {
	case "": // a message
		return false, nil
	case "204": // there are some, and none behind
		if upTo, err := strconv.ParseUint(answer.Header.Get("Nats-UpTo-Sequence"), 10, 64); err == nil && upTo >= info.State.LastSeq {
			return true, nil
		}
	case "404", "413": // there are none; too many for one answer
	default:
		return false, fmt.Errorf("ask %s for its end: status %s %s", info.Config.Name, status, answer.Header.Get("Description"))
	}
	return false, fmt.Errorf("ask %s for its end: %w", info.Config.Name, errBehind)
}
