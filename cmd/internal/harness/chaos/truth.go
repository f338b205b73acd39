package main

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/schema"
)

// truth is the content of the simulators' logs, counted without package consumer.
type truth struct {
	made      map[origin]uint64  // seq of the last batch, withheld ones included
	batches   map[origin][]batch // published ones, in order
	published int                // batches
	withheld  int                // batches
	losses    map[producerRun]*losses
	processes map[schema.ProcessID]*published
	boots     map[host]string       // the last boot id
	holes     map[host][]*published // processes of withheld batches that no later batch follows yet
}

// losses are the events of withheld batches.
type losses struct {
	events   uint64
	reported [schema.NumKinds]uint64 // by the last published batch of each kind
}

type host struct{ cluster, name string }

type producerRun struct {
	host
	boot string
	at   uint64
}

// origin is the scope of seq.
type origin struct {
	producerRun
	kind schema.Kind
}

func (o origin) String() string { return fmt.Sprintf("%s of %s/%s", o.kind, o.cluster, o.name) }

func originOf(b *schema.Batch) origin {
	return origin{producerRun{host{b.Cluster, b.Host}, b.BootID, b.Run}, b.Kind}
}

// batch is one published batch.
type batch struct {
	seq, sum uint64
	events   int
}

var seed = maphash.MakeSeed()

func batchOf(b *schema.Batch, data []byte) batch {
	return batch{b.Seq, maphash.Bytes(seed, data), b.Events}
}

func newTruth() *truth {
	return &truth{
		made: map[origin]uint64{}, batches: map[origin][]batch{}, losses: map[producerRun]*losses{},
		processes: map[schema.ProcessID]*published{}, boots: map[host]string{}, holes: map[host][]*published{},
	}
}

func readTruth(logs ...string) (*truth, error) {
	t, decoder := newTruth(), schema.NewDecoder()
	var b schema.Batch
	for _, path := range logs {
		for e, err := range simulate.ReadLog(path) {
			if err != nil {
				return nil, err
			}
			if err := decoder.Decode(e.Data, &b); err != nil {
				return nil, fmt.Errorf("log %s: %w", path, err)
			}
			if err := t.add(&b, e.Data, e.Withheld); err != nil {
				return nil, err
			}
			t.apply(&b, e.Withheld)
		}
	}
	for id, p := range t.processes {
		if t.boots[host{id.Cluster, id.Host}] != id.BootID {
			p.exit() // its host rebooted
		}
	}
	return t, nil
}

// add counts a batch. The log holds the batches of one host in the order in which they were made.
func (t *truth) add(b *schema.Batch, data []byte, withheld bool) error {
	at := originOf(b)
	if t.made[at]++; t.made[at] != b.Seq {
		return fmt.Errorf("truth log: seq %d of %s, want %d", b.Seq, at, t.made[at])
	}
	lost := t.losses[at.producerRun]
	if lost == nil {
		lost = &losses{}
		t.losses[at.producerRun] = lost
	}
	if withheld {
		lost.events += uint64(b.Events)
		t.withheld++
		return nil
	}
	t.published++
	t.batches[at] = append(t.batches[at], batchOf(b, data))
	lost.reported[b.Kind] = lost.events
	if b.Kind == schema.KindMemory || b.Kind == schema.KindHost {
		t.boots[at.host] = b.BootID
	}
	return nil
}

// counts are the expected counts of a reader of some kinds of one shard.
type counts struct {
	batches, missing, lost uint64
	events                 [schema.NumKinds]uint64
}

func (t *truth) counts(shard, shards int, kinds []schema.Kind) (c counts) {
	for at, batches := range t.batches {
		if schema.Shard(at.cluster, at.name, shards) != shard || !slices.Contains(kinds, at.kind) {
			continue
		}
		published := uint64(len(batches))
		c.batches += published
		c.missing += batches[published-1].seq - published // a reader notices a gap only if a later batch follows
		for _, b := range batches {
			c.events[at.kind] += uint64(b.events)
		}
	}
	for at, lost := range t.losses {
		if schema.Shard(at.cluster, at.name, shards) != shard {
			continue
		}
		most := uint64(0)
		for _, kind := range kinds {
			most = max(most, lost.reported[kind])
		}
		c.lost += most
	}
	return c
}
