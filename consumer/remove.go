package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// RemoveStreams takes away all that EnsureStreams made, and says what. Checkpoints go before the events that
// they speak of and the topology last: after a crash in between, another call or another EnsureStreams goes
// on from there.
func RemoveStreams(ctx context.Context, js jetstream.JetStream) (removed []string, err error) {
	have, err := OwnStreams(ctx, js)
	if err != nil {
		return nil, err
	}
	order := []string{schema.StateStream, schema.BucketStream(schema.LeaseBucket)}
	for name := range have {
		if strings.HasPrefix(name, schema.StreamPrefix) || strings.HasPrefix(name, trialPrefix) {
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

// RemoveGeneration takes away the streams of a closed generation, once every fold has taken its states over, the checkpoints of
// its shards, and then its name.
func RemoveGeneration(ctx context.Context, js jetstream.JetStream, generation int) (removed []string, err error) {
	t, entry, err := storedTopology(ctx, js)
	if err != nil {
		return nil, err
	}
	closed := slices.IndexFunc(t.Previous, func(g schema.Topology) bool { return g.Generation == generation })
	switch {
	case generation == t.Generation:
		return nil, fmt.Errorf("generation %d is the one that producers publish to: only closed ones can be removed alone", generation)
	case closed < 0:
		return nil, fmt.Errorf("the bus has no generation %d: see gputap stream info", generation)
	}
	all := t.Generations()
	for i := range closed + 1 { // whoever has seen only what is before it needs it too
		if err := takenOver(ctx, js, &all[i], &all[closed+1]); err != nil {
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
	if err := purgeStates(ctx, js, t.Previous[closed].Numbers()); err != nil {
		return removed, err
	}
	return removed, writeTopology(ctx, js, t.Without(generation), entry.Revision())
}

// purgeStates takes away what all folds have saved of shards.
func purgeStates(ctx context.Context, js jetstream.JetStream, shards []int) error {
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

// removeStream is content when it is gone already.
func removeStream(ctx context.Context, js jetstream.JetStream, name string) error {
	if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove JetStream stream %s: %w", name, err)
	}
	return nil
}
