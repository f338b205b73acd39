package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

const manifestSubjects = "gputap.v1.state.*.*.m" // fold, shard

// manifest is the part of a checkpoint's manifest that is compared here.
type manifest struct {
	Owner    string `json:"owner"`
	Epoch    uint64 `json:"epoch"`
	Sequence uint64 `json:"sequence"`
}

// commits watches the manifests of all checkpoints: those that the stream stores, and those that are only published. A
// stored manifest may not be older than the one that it replaces.
type commits struct {
	mu sync.Mutex
	seen
}

// seen sums up the manifests since the start.
type seen struct {
	newest map[string]manifest // stored, by subject
	stored int
	fenced int // published by an instance that had been replaced
	faults []error
}

func newCommits() *commits { return &commits{seen: seen{newest: map[string]manifest{}}} }

// watchCommits watches until the connection is closed.
func (f *fleet) watchCommits(ctx context.Context) error {
	f.commits = newCommits()
	if _, err := f.js.Conn().Subscribe(manifestSubjects, f.commits.onPublished); err != nil {
		return err
	}
	ordered, err := f.js.OrderedConsumer(ctx, schema.StateStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{manifestSubjects},
	})
	if err != nil {
		return err
	}
	_, err = ordered.Consume(func(m jetstream.Msg) { f.commits.onStored(m.Subject(), m.Data()) })
	return err
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
		c.faults = append(c.faults, fmt.Errorf("%s: the commit %+v replaced the newer one %+v", subject, m, before))
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

func (c *commits) now() seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.seen
	now.newest = maps.Clone(now.newest)
	return now
}

// delayCommit delays a commit of a running instance on its way to NATS, with everything that follows it on its
// connection, until another instance has claimed the shard. The delayed commit must then be rejected.
func (f *fleet) delayCommit(ctx context.Context) error {
	subjects := slices.Sorted(maps.Keys(f.commits.now().newest))
	subject := subjects[f.random.IntN(len(subjects))]
	f.note("delay a commit", subject)
	d := newDelay("PUB " + subject + " ")
	for _, p := range f.proxies {
		p.delay.Store(d)
	}
	select {
	case <-d.caught:
		f.waitForClaim(ctx, subject)
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	for _, p := range f.proxies {
		p.delay.Store(nil)
	}
	close(d.released)
	return cluster.Sleep(ctx, 2*time.Second)
}

// waitForClaim waits up to a minute until another instance claims a shard.
func (f *fleet) waitForClaim(ctx context.Context, subject string) {
	epoch := f.commits.now().newest[subject].Epoch
	err := cluster.Until(ctx, time.Minute, func() error {
		if f.commits.now().newest[subject].Epoch == epoch {
			return fmt.Errorf("no instance claimed %s, whose commit was delayed", subject)
		}
		return nil
	})
	if err != nil {
		f.Say("%v", err) // the next commit that is delayed may be of a shard that is needed
	}
}
