package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

const manifestSubjects = "gputap.v1.state.*.*.m" // fold, shard

// manifest is the part of a checkpoint's manifest that is compared here.
type manifest struct {
	Owner    string `json:"owner"`
	Epoch    uint64 `json:"epoch"`
	Sequence uint64 `json:"sequence"`
	Sums     []any  `json:"sums"`
}

func (m manifest) String() string {
	return fmt.Sprintf("%s (epoch %d, seq %d)", m.Owner, m.Epoch, m.Sequence)
}

// commits watches the manifests of all checkpoints: those that the stream stores, and those that are only published. A
// stored manifest may not be older than the one that it replaces.
type commits struct {
	mu     sync.Mutex
	newest map[string]manifest // stored, by subject
	stored int
	fenced int // published by an instance that had been replaced
	faults []error
}

// watchCommits watches until the fleet is closed.
func (f *fleet) watchCommits() error {
	f.commits = &commits{newest: map[string]manifest{}}
	if _, err := f.nc.Subscribe(manifestSubjects, f.commits.onPublished); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	f.stopWatching = func() {
		stop()
		<-ended
	}
	go func() {
		defer close(ended)
		for from := uint64(1); ctx.Err() == nil; _ = cluster.Sleep(ctx, 100*time.Millisecond) {
			from = f.readCommits(ctx, from)
		}
	}()
	return nil
}

// readCommits reads stored manifests from a sequence on, until NATS is unreachable. It returns the next sequence.
func (f *fleet) readCommits(ctx context.Context, from uint64) uint64 {
	ordered, err := f.js.OrderedConsumer(ctx, schema.StateStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{manifestSubjects},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
	})
	if err != nil {
		return from
	}
	messages, err := ordered.Messages()
	if err != nil {
		return from
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if err != nil {
			return from
		}
		if meta, err := m.Metadata(); err == nil && meta.Sequence.Stream >= from {
			from = meta.Sequence.Stream + 1
			f.commits.onStored(m.Subject(), m.Data())
		}
	}
}

func (c *commits) onStored(subject string, data []byte) {
	var m manifest
	err := json.Unmarshal(data, &m)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.newest[subject]
	switch {
	case err != nil:
		c.faults = append(c.faults, fmt.Errorf("%s: %w", subject, err))
	case m.Epoch < before.Epoch, m.Epoch == before.Epoch && m.Owner != before.Owner, m.Sequence < before.Sequence:
		c.faults = append(c.faults, fmt.Errorf("%s: the commit of %s replaced the newer one of %s", subject, m, before))
	}
	c.newest[subject] = m
	c.stored++
}

func (c *commits) onPublished(msg *nats.Msg) {
	var m manifest
	if json.Unmarshal(msg.Data, &m) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Epoch < c.newest[msg.Subject].Epoch {
		c.fenced++
	}
}

func (c *commits) all() map[string]manifest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.newest)
}

func (c *commits) counts() (stored, fenced int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stored, c.fenced
}

func (c *commits) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.faults[:min(len(c.faults), mostFaults)]...)
}

// sequences returns up to where each fold has committed: the sum over its shards.
func (c *commits) sequences() map[string]uint64 {
	sums := map[string]uint64{}
	for subject, m := range c.all() {
		sums[strings.Split(subject, ".")[3]] += m.Sequence
	}
	return sums
}

// allShardsOwned returns nil once each fold has an owner of each shard.
func (f *fleet) allShardsOwned() error {
	if have, want := len(f.commits.all()), f.shards*len(fold.Names()); have < want {
		return fmt.Errorf("the consumers own %d of %d shards", have, want)
	}
	return nil
}

// delayCommit delays a commit of a running instance on its way to NATS, with everything that follows it on its
// connection, until another instance has claimed the shard. The delayed commit must then be rejected.
func (f *fleet) delayCommit(ctx context.Context) error {
	subjects := slices.Sorted(maps.Keys(f.commits.all()))
	subject := subjects[f.random.IntN(len(subjects))]
	f.note("delay a commit", subject)
	d := newDelay("PUB " + subject + " ")
	for _, p := range f.proxies {
		p.setDelay(d)
	}
	defer func() {
		for _, p := range f.proxies {
			p.setDelay(nil)
		}
		d.release()
	}()
	select {
	case <-d.caught:
	case <-time.After(time.Minute):
		f.Say("nothing was committed for a minute; no commit was delayed")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	epoch := f.commits.all()[subject].Epoch
	for deadline := time.Now().Add(time.Minute); f.commits.all()[subject].Epoch == epoch; {
		if time.Now().After(deadline) {
			f.Say("no other instance claimed the shard within a minute; the commit was sent on")
			return nil
		}
		if err := cluster.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	d.release()
	_ = cluster.Sleep(ctx, 2*time.Second)
	return nil
}
