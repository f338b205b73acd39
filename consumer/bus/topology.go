package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// ErrNoTopology means that nobody has set the bus up yet.
var ErrNoTopology = errors.New("NATS has no gputap topology; run gputap stream init")

// errRaced means that another caller changed the topology after it was read.
var errRaced = errors.New("another caller changed the topology meanwhile: check it with gputap stream info and retry")

// ReadTopology reads which shards NATS has.
func ReadTopology(ctx context.Context, js jetstream.JetStream) (schema.Topology, error) {
	t, _, err := storedTopology(ctx, js)
	return t, err
}

// ReadTopologySince also returns when the topology's bucket was created. Another time means that the bus was removed
// and set up again, so shard numbers have a new meaning.
func ReadTopologySince(ctx context.Context, js jetstream.JetStream) (t schema.Topology, created time.Time, err error) {
	t, err = ReadTopology(ctx, js)
	if err != nil {
		return t, created, err
	}
	bucket, err := js.Stream(ctx, schema.BucketStream(schema.MetaBucket))
	if err != nil {
		return t, created, explainUnavailable(fmt.Errorf("read the topology: %w", err))
	}
	return t, bucket.CachedInfo().Created, nil
}

// storedTopology also returns the revision of the topology's key; 0 with an error.
func storedTopology(ctx context.Context, js jetstream.JetStream) (t schema.Topology, revision uint64, err error) {
	var entry jetstream.KeyValueEntry
	kv, err := js.KeyValue(ctx, schema.MetaBucket)
	if err == nil {
		entry, err = kv.Get(ctx, schema.TopologyKey)
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return t, 0, ErrNoTopology
	}
	if err != nil {
		return t, 0, explainUnavailable(fmt.Errorf("read the topology: %w", err))
	}
	if t, err = schema.ParseTopology(entry.Value()); err != nil {
		return t, 0, fmt.Errorf("read key %s of bucket %s: %w: restore an earlier revision of the key, or start over "+
			"with gputap stream rm", schema.TopologyKey, schema.MetaBucket, err)
	}
	return t, entry.Revision(), nil
}

// writeTopology replaces the topology that was read at revision; 0 means that there was none. It succeeds too when
// another caller has written the same topology.
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
		return fmt.Errorf("write a topology of %d shards: %w (NATS now has %d shards)", t.Shards, errRaced, now.Shards)
	case errors.Is(err, jetstream.ErrKeyExists):
		return fmt.Errorf("write a topology of %d shards: %w", t.Shards, errRaced)
	}
	return fmt.Errorf("write the topology: %w", err)
}
