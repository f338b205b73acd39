package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// ErrNoTopology says that nobody has set the bus up yet.
var ErrNoTopology = errors.New("the bus has no topology: set it up with gputap stream init")

// ReadTopology reads which shards the bus has.
func ReadTopology(ctx context.Context, js jetstream.JetStream) (schema.Topology, error) {
	t, _, err := storedTopology(ctx, js)
	return t, err
}

// bornTopology says also since when the bus has had topologies: not for longer than since somebody removed all that it had.
func bornTopology(ctx context.Context, js jetstream.JetStream) (t schema.Topology, born time.Time, err error) {
	t, err = ReadTopology(ctx, js)
	if err != nil {
		return t, born, err
	}
	bucket, err := js.Stream(ctx, schema.BucketStream(schema.MetaBucket))
	if err != nil {
		return t, born, notReady(fmt.Errorf("read the topology of the bus: %w", err))
	}
	return t, bucket.CachedInfo().Created, nil
}

// storedTopology gives the key too, for its revision; none with an error.
func storedTopology(ctx context.Context, js jetstream.JetStream) (schema.Topology, jetstream.KeyValueEntry, error) {
	kv, err := js.KeyValue(ctx, schema.MetaBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return schema.Topology{}, nil, ErrNoTopology
	}
	if err != nil {
		return schema.Topology{}, nil, notReady(fmt.Errorf("read the topology of the bus: %w", err))
	}
	entry, err := kv.Get(ctx, schema.TopologyKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return schema.Topology{}, nil, ErrNoTopology
	}
	if err != nil {
		return schema.Topology{}, nil, notReady(fmt.Errorf("read the topology of the bus: %w", err))
	}
	t, err := schema.ParseTopology(entry.Value())
	if err != nil {
		return schema.Topology{}, nil, fmt.Errorf("key %s of bucket %s: %w: write the value of an earlier revision again, or start anew "+
			"with gputap stream rm", schema.TopologyKey, schema.MetaBucket, err)
	}
	return t, entry, nil
}

// errRaced says that somebody else wrote the topology in between.
var errRaced = errors.New("the topology was changed by somebody else in between: look at it with gputap stream info, and try again")

// writeTopology replaces what was read as revision, 0 for nothing. Of two at once one wins; the other finds
// out, or that both wanted the same.
func writeTopology(ctx context.Context, js jetstream.JetStream, t schema.Topology, revision uint64) error {
	kv, err := js.KeyValue(ctx, schema.MetaBucket)
	if err != nil {
		return fmt.Errorf("write the topology: %w", err)
	}
	if revision == 0 {
		_, err = kv.Create(ctx, schema.TopologyKey, t.Encode())
	} else {
		_, err = kv.Update(ctx, schema.TopologyKey, t.Encode(), revision)
	}
	if err == nil {
		return nil
	}
	now, _, readErr := storedTopology(ctx, js)
	switch {
	case readErr == nil && now.Equal(t):
		return nil
	case errors.Is(err, jetstream.ErrKeyExists) && readErr == nil:
		return fmt.Errorf("write %d shards: %w (it has %d shards now)", t.Shards, errRaced, now.Shards)
	case errors.Is(err, jetstream.ErrKeyExists):
		return fmt.Errorf("write %d shards: %w", t.Shards, errRaced)
	}
	return fmt.Errorf("write the topology: %w", err)
}

// errNoShard says that no generation of the bus has a shard.
func errNoShard(t schema.Topology, shard int) error {
	return fmt.Errorf("the bus has no shard %d: generation %d has %d shards, from %d to %d: correct consumer.shard (gputap stream info)",
		shard, t.Generation, t.Shards, t.First, t.First+t.Shards-1)
}
