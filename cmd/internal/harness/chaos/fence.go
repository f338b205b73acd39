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

	"github.com/gputap/gputap/schema"
)

const manifestSubjects = "gputap.v1.state.*.*.m" // fold, shard

// manifest is what a checkpoint says of itself, as far as it is looked at here.
type manifest struct {
	Owner    string `json:"owner"`
	Epoch    uint64 `json:"epoch"`
	Sequence uint64 `json:"sequence"`
	Sums     []any  `json:"sums"`
}

func (m manifest) String() string {
	return fmt.Sprintf("%s (epoch %d, seq %d)", m.Owner, m.Epoch, m.Sequence)
}

// fence watches the manifests of all checkpoints, those that the bus stores and those that are only published. None that is
// stored may be older than the one that it replaces.
type fence struct {
	mu     sync.Mutex
	newest map[string]manifest // stored, by subject
	stored int
	late   int // published by an instance that had been replaced
	faults []error
}

// watchManifests goes on until the fleet is closed.
func (f *fleet) watchManifests() error {
	f.fence = &fence{newest: map[string]manifest{}}
	if _, err := f.nc.Subscribe(manifestSubjects, f.fence.published); err != nil {
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
		for from := uint64(1); ctx.Err() == nil; f.pause(ctx, 100*time.Millisecond) {
			from = f.readManifests(ctx, from)
		}
	}()
	return nil
}

// readManifests reads what is stored from a sequence on, until the bus is away; it gives the next one.
func (f *fleet) readManifests(ctx context.Context, from uint64) uint64 {
	ordered, err := f.js.OrderedConsumer(ctx, schema.StateStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{manifestSubjects}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
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
			f.fence.see(m.Subject(), m.Data())
		}
	}
}

func (w *fence) see(subject string, data []byte) {
	var m manifest
	err := json.Unmarshal(data, &m)
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.newest[subject]
	switch {
	case err != nil:
		w.faults = append(w.faults, fmt.Errorf("%s: %w", subject, err))
	case m.Epoch < before.Epoch, m.Epoch == before.Epoch && m.Owner != before.Owner, m.Sequence < before.Sequence:
		w.faults = append(w.faults, fmt.Errorf("%s: the commit of %s was stored over the newer one of %s", subject, m, before))
	}
	w.newest[subject] = m
	w.stored++
}

func (w *fence) published(msg *nats.Msg) {
	var m manifest
	if json.Unmarshal(msg.Data, &m) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Epoch < w.newest[msg.Subject].Epoch {
		w.late++
	}
}

func (w *fence) all() map[string]manifest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.newest)
}

func (w *fence) counts() (stored, late int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored, w.late
}

func (w *fence) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.faults[:min(len(w.faults), mostFaults)]...)
}

// owned is nil when each fold has an owner of each shard: before that there is little to hurt.
func (f *fleet) owned() error {
	if have, want := len(f.fence.all()), f.shards*len(consumers); have < want {
		return fmt.Errorf("the consumers own %d of %d shards", have, want)
	}
	return nil
}

// committed is up to where the shards of each fold are folded and committed, all together.
func (w *fence) committed() map[string]uint64 {
	sums := map[string]uint64{}
	for subject, m := range w.all() {
		sums[strings.Split(subject, ".")[3]] += m.Sequence
	}
	return sums
}

// holdCommit keeps a commit of an instance that lives back on its way to the bus, with all that comes behind it on its
// connection, until another instance has claimed the shard. Then it lets it go on: what is written by then must not count.
func (f *fleet) holdCommit(ctx context.Context) error {
	all := f.fence.all()
	subjects := slices.Sorted(maps.Keys(all))
	subject := subjects[f.random.IntN(len(subjects))]
	f.note("hold back a commit", subject)
	hold := newHold("PUB " + subject + " ")
	for _, p := range f.proxies {
		p.hold(hold)
	}
	defer func() {
		for _, p := range f.proxies {
			p.hold(nil)
		}
		hold.release()
	}()
	select {
	case <-hold.caught:
	case <-time.After(time.Minute):
		f.say("nothing was committed for a minute: no commit was held back")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	for deadline, epoch := time.Now().Add(time.Minute), f.fence.all()[subject].Epoch; f.fence.all()[subject].Epoch == epoch; f.pause(ctx, 50*time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			f.say("nobody claimed the shard: the commit was let go")
			return ctx.Err()
		}
	}
	hold.release()
	f.pause(ctx, 2*time.Second)
	return nil
}
