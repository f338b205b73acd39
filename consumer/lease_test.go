package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// TestMostLeases: a fold of as many shards and instances as there may be sees all of them, and no other fold's nor what was
// given away.
func TestMostLeases(t *testing.T) {
	f := newFleet(t, 1)
	c := info(t, f.admin, schema.BucketStream(schema.LeaseBucket)).Config
	c.MaxAge = time.Minute // none is forgotten while the others are written
	if _, err := f.admin.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	l, err := openLeases(t.Context(), f.admin, "chain", "me")
	if err != nil {
		t.Fatal(err)
	}
	var acks []jetstream.PubAckFuture
	put := func(key string) {
		ack, err := f.admin.PublishAsync(schema.KeySubject(schema.LeaseBucket, key), l.value())
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, ack)
	}
	for shard := range schema.MostShards {
		put(l.key(shard))
		put(fmt.Sprintf("another.%d", shard))
	}
	for _, members := range []int{0, 1, 1100} {
		for i := range members {
			put(fmt.Sprintf("m.chain.i%d", i))
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				t.Fatal(err)
			}
		}
		acks = nil
		there, owners, err := l.look(t.Context())
		if err != nil || len(there) != members || len(owners) != schema.MostShards || owners[schema.MostShards-1] != "me" {
			t.Errorf("%d members, %d owners, %v; want %d and %d", len(there), len(owners), err, members, schema.MostShards)
		}
	}
	if err := l.kv.Delete(t.Context(), l.key(7)); err != nil {
		t.Fatal(err)
	}
	if _, owners, err := l.look(t.Context()); err != nil || len(owners) != schema.MostShards-1 || owners[7] != "" {
		t.Errorf("%d owners, %q of shard 7, %v", len(owners), owners[7], err)
	}
}
