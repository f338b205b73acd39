package main

import (
	"fmt"
	"hash/fnv"

	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/schema"
)

// truth is the content of the simulators' logs, counted without package consumer.
type truth struct {
	batches    map[origin][]logged    // by seq - 1
	last       map[origin]uint64      // seq of the last one that was published
	published  int                    // batches
	withheld   int                    // batches
	lostEvents map[producerRun]uint64 // in withheld batches
	// of them, those that the last published batch of each kind reports
	lost      map[producerRun]*[schema.NumKinds]uint64
	processes map[schema.ProcessID]*published
	boots     map[host]string       // the last boot id
	holes     map[host][]*published // processes of withheld batches that no later batch follows yet
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

// logged is one batch.
type logged struct {
	sum      uint64
	events   int
	withheld bool // not published
}

func originOf(b *schema.Batch) origin {
	return origin{producerRun{host{b.Cluster, b.Host}, b.BootID, b.Run}, b.Kind}
}

func sum(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64()
}

func newTruth() *truth {
	return &truth{
		batches: map[origin][]logged{}, last: map[origin]uint64{},
		lostEvents: map[producerRun]uint64{}, lost: map[producerRun]*[schema.NumKinds]uint64{},
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
			if err := t.add(&b, sum(e.Data), e.Withheld); err != nil {
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
func (t *truth) add(b *schema.Batch, sum uint64, withheld bool) error {
	at := originOf(b)
	if uint64(len(t.batches[at]))+1 != b.Seq {
		return fmt.Errorf("truth log: seq %d of %s follows %d", b.Seq, at, len(t.batches[at]))
	}
	t.batches[at] = append(t.batches[at], logged{sum, b.Events, withheld})
	if withheld {
		t.lostEvents[at.producerRun] += uint64(b.Events)
		t.withheld++
		return nil
	}
	t.published++
	t.last[at] = b.Seq
	if t.lost[at.producerRun] == nil {
		t.lost[at.producerRun] = &[schema.NumKinds]uint64{}
	}
	t.lost[at.producerRun][b.Kind] = t.lostEvents[at.producerRun]
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
	wanted := [schema.NumKinds]bool{}
	for _, kind := range kinds {
		wanted[kind] = true
	}
	for at, batches := range t.batches {
		if schema.Shard(at.cluster, at.name, shards) != shard || !wanted[at.kind] {
			continue
		}
		for i, b := range batches {
			switch {
			case !b.withheld:
				c.batches++
				c.events[at.kind] += uint64(b.events)
			case uint64(i) < t.last[at]: // a reader notices a gap only if a later batch follows
				c.missing++
			}
		}
	}
	for at, lost := range t.lost {
		if schema.Shard(at.cluster, at.name, shards) != shard {
			continue
		}
		most := uint64(0)
		for kind, n := range lost {
			if wanted[kind] {
				most = max(most, n)
			}
		}
		c.lost += most
	}
	return c
}
