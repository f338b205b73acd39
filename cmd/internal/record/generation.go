package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// removedMessages is why the state of a shard is partial, unless the shards changed.
const removedMessages = "earlier messages had been removed"

// lack takes note of why the state of a source is partial, and since when it has all events.
func (s *source) lack(since time.Time, why string) {
	if since.After(s.stream.Since) {
		s.stream.Since = since
	}
	s.lacks = why
}

// beginning returns the state of leak before the first message of a stream. It is empty in the first generation. Later,
// it is what the hosts of the shard published to the generation before.
func (r *Recorder) beginning(ctx context.Context, s *source, info *jetstream.StreamInfo, t schema.Topology) (
	*consumer.Replay, error) {
	own, _ := t.Find(s.shard)
	switch {
	case before(info) > 0:
		s.lack(info.State.FirstTime, removedMessages)
		return consumer.NewReplay(s.shard, newTracker(), false, r.Log), nil
	case own.Generation == 1:
		return consumer.NewReplay(s.shard, newTracker(), true, r.Log), nil
	}
	i := slices.IndexFunc(t.Previous, func(g schema.Topology) bool { return g.Generation == own.Generation-1 })
	if i < 0 {
		s.lack(info.Created, fmt.Sprintf("the shards changed at %s, and generation %d, which had the events from "+
			"before, was removed", info.Created.UTC().Format(time.RFC3339), own.Generation-1))
		return consumer.NewReplay(s.shard, newTracker(), false, r.Log), nil
	}
	return r.inherit(ctx, s, own, t.Previous[i], t)
}

// inherit returns the state of the hosts of a shard at the end of the generation before.
func (r *Recorder) inherit(ctx context.Context, s *source, own, earlier, t schema.Topology) (*consumer.Replay, error) {
	whole := true
	for _, number := range earlier.Numbers() {
		c, err := r.closedShard(ctx, number, t)
		if err != nil {
			return nil, err
		}
		if c.state == nil || !c.state.Whole() {
			whole = false
			s.lack(c.stream.Since, c.lacks)
		}
	}
	p := consumer.NewReplay(s.shard, newTracker(), whole, r.Log)
	for _, number := range earlier.Numbers() {
		c := r.closed[number]
		if c.state == nil {
			continue
		}
		hosts := func(cluster, host string) bool { // a batch may have arrived on the wrong shard
			return own.Shard(cluster, host) == s.shard && earlier.Shard(cluster, host) == number
		}
		err := c.state.Sections(func(of recording.Section) error {
			if of.Cluster+of.Host == "" || !hosts(of.Cluster, of.Host) {
				return nil
			}
			return p.RestoreCheckpoint(of.Data, hosts)
		})
		if err != nil {
			return nil, fmt.Errorf("read the state of shard %d: %w", number, err)
		}
	}
	return p, nil
}

// closedShard is a shard of an earlier generation. state is that at its end; nil: unknown.
type closedShard struct {
	*source
	state *consumer.Replay
}

// closedShard returns a closed shard, whose state is read once.
func (r *Recorder) closedShard(ctx context.Context, number int, t schema.Topology) (closedShard, error) {
	if c, known := r.closed[number]; known {
		return c, nil
	}
	info, err := r.lookUp(ctx, number)
	gone := errors.Is(err, jetstream.ErrStreamNotFound)
	if err != nil && !gone {
		return closedShard{}, err
	}
	c := closedShard{source: &source{shard: number}}
	switch {
	case gone:
		c.lack(time.Time{}, fmt.Sprintf("the shards changed, and stream %s, which had events from before, was removed",
			schema.StreamName(number)))
	case !info.Config.Sealed:
		c.lack(time.Now(), fmt.Sprintf("the shards are changing, and stream %s is not closed yet", info.Config.Name))
	default:
		c.source = r.newSource(number, info, 1)
		c.position = info.State.LastSeq
		if c.state, err = r.stateOf(ctx, c.source, info, r.checkpoint(ctx, number), t); err != nil {
			return closedShard{}, err
		}
	}
	r.closed[number] = c
	return c, nil
}

// stateOf returns the state of leak up to the position of a source.
func (r *Recorder) stateOf(ctx context.Context, s *source, info *jetstream.StreamInfo, saved shard.SavedState,
	t schema.Topology) (p *consumer.Replay, err error) {
	p, from := r.restore(s, info, saved)
	if p == nil {
		if p, err = r.beginning(ctx, s, info, t); err != nil {
			return nil, err
		}
	}
	if err := r.fold(ctx, p, s, from); err != nil {
		return nil, err
	}
	if !p.Whole() && s.lacks == "" { // the checkpoint is partial
		s.lack(time.Time{}, removedMessages)
	}
	return p, nil
}
