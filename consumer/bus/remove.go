package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// RemoveStreams removes all that EnsureStreams created and returns the names. Checkpoints go before the events that
// they refer to, and the topology goes last: after a crash, another RemoveStreams or EnsureStreams completes the work.
func RemoveStreams(ctx context.Context, js jetstream.JetStream) (removed []string, err error) {
	have, err := OwnStreams(ctx, js)
	if err != nil {
		return nil, err
	}
	order := []string{schema.StateStream, schema.BucketStream(schema.LeaseBucket)}
	for name := range have {
		if strings.HasPrefix(name, schema.StreamPrefix) {
			order = append(order, name)
		}
	}
	slices.Sort(order[2:])
	order = append(order, schema.OutStream, schema.DeadLetterStream, schema.BucketStream(schema.MetaBucket))
	for _, name := range order {
		if have[name] == nil {
			continue
		}
		if err := removeStream(ctx, js, name); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}

// RemoveGeneration removes the streams of a closed generation, the checkpoints of its shards, and its entry in the
// topology. Before that it asks inUse about the generation and each one before it: an error means that a fold still
// needs the state of closed, because next has not taken it over.
func RemoveGeneration(
	ctx context.Context, js jetstream.JetStream, generation int, inUse func(closed, next *schema.Topology) error,
) (removed []string, err error) {
	t, revision, err := storedTopology(ctx, js)
	if err != nil {
		return nil, err
	}
	closed := slices.IndexFunc(t.Previous, func(g schema.Topology) bool { return g.Generation == generation })
	switch {
	case generation == t.Generation:
		return nil, fmt.Errorf("remove generation %d: producers publish to it; only a closed generation can be removed",
			generation)
	case closed < 0:
		return nil, fmt.Errorf("remove generation %d: NATS holds no such generation; see gputap stream info",
			generation)
	}
	all := t.Generations()
	for i := range closed + 1 { // a fold that has only read an earlier generation needs this one too
		if err := inUse(&all[i], &all[closed+1]); err != nil {
			return nil, err
		}
	}
	for _, shard := range t.Previous[closed].Numbers() {
		name := schema.StreamName(shard)
		if err := removeStream(ctx, js, name); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	if err := purgeCheckpoints(ctx, js, t.Previous[closed].Numbers()); err != nil {
		return removed, err
	}
	return removed, writeTopology(ctx, js, t.Without(generation), revision)
}

// purgeCheckpoints removes what all folds have saved of shards.
func purgeCheckpoints(ctx context.Context, js jetstream.JetStream, shards []int) error {
	states, err := js.Stream(ctx, schema.StateStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	for i := 0; err == nil && i < len(shards); i++ {
		ofShard := fmt.Sprintf("%s*.%d.>", strings.TrimSuffix(schema.StateSubjects, ">"), shards[i])
		err = states.Purge(ctx, jetstream.WithPurgeSubject(ofShard))
	}
	if err != nil {
		return fmt.Errorf("remove checkpoints from %s: %w", schema.StateStream, err)
	}
	return nil
}

// removeStream succeeds when the stream does not exist.
func removeStream(ctx context.Context, js jetstream.JetStream, name string) error {
	if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove JetStream stream %s: %w", name, err)
	}
	return nil
}
