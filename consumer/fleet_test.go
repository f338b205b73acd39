package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

// fleet is a bus with shards, leases and room for states.
type fleet struct {
	t     *testing.T
	bus   interface{ Connect() jetstream.JetStream }
	admin jetstream.JetStream
	topo  schema.Topology
	lease time.Duration
	// rebuild is how long an unusable state waits; 0: three leases
	rebuild time.Duration
	log     logPage
	seqs    map[string]uint64
	sums    map[string]uint64 // expected chain of each host
}

func newFleet(t *testing.T, shards int) *fleet { return newFleetOn(t, bustest.NewAccount(t), shards) }

func newFleetOn(t *testing.T, on interface{ Connect() jetstream.JetStream }, shards int) *fleet {
	t.Helper()
	f := &fleet{
		t: t, bus: on, admin: on.Connect(), lease: time.Second, topo: schema.Topology{Generation: 1, Shards: shards},
		seqs: map[string]uint64{}, sums: map[string]uint64{},
	}
	f.setUp(shards)
	return f
}

func (f *fleet) setUp(shards int) {
	f.t.Helper()
	o := bus.StreamOptions{Shards: shards, MaxBytes: int64(shards) << 26, Lease: f.lease}
	if err := bus.EnsureStreams(f.t.Context(), f.admin, o); err != nil {
		f.t.Fatal(err)
	}
}

// send publishes the next batch of a host.
func (f *fleet) send(host string) {
	f.t.Helper()
	f.seqs[host]++
	f.sums[host] = link(f.sums[host], 1, f.seqs[host])
	data := encode(schema.KindMemory, schema.Header{Cluster: "c", Host: host, BootID: "b", Run: 1, Seq: f.seqs[host]})
	subject := schema.Subject(f.topo.Shard("c", host), "c", host, schema.KindMemory)
	if _, err := f.admin.Publish(f.t.Context(), subject, data); err != nil {
		f.t.Fatal(err)
	}
}

// instance is one running consumer with a connection of its own.
type instance struct {
	*Consumer
	js   jetstream.JetStream
	name string
	stop func() // gracefully
	kill func() // as if the process were gone
}

func (f *fleet) instance(name string, fold func() Stateful) *instance {
	js := f.bus.Connect()
	o := Options{
		Instance: name, Checkpoint: 50 * time.Millisecond, Settle: 50 * time.Millisecond, Retry: retry,
		Rebuild: f.rebuild,
	}
	c := New(o, js, fold, slog.New(slog.NewJSONHandler(&f.log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = c.Run(ctx)
	}()
	i := &instance{Consumer: c, js: js, name: name}
	i.stop = func() {
		cancel()
		if <-done; err != nil {
			f.t.Error(err)
		}
	}
	i.kill = sync.OnceFunc(func() {
		js.Conn().Close()
		cancel()
		<-done
	})
	f.t.Cleanup(i.kill)
	return i
}

// committed returns the saved state of every shard.
func (f *fleet) committed() map[int][]byte {
	f.t.Helper()
	states := map[int][]byte{}
	for _, number := range f.topo.Numbers() {
		saved, err := shard.Saved(f.t.Context(), f.admin, "chain", number)
		if err != nil {
			f.t.Fatal(err)
		}
		states[number] = saved.State
	}
	return states
}

// manifest is what these tests read of a shard's manifest.
type manifest struct {
	Epoch  uint64 `json:"epoch"`
	Commit uint64 `json:"commit"`
	Parts  string `json:"parts"`
	Sums   []any  `json:"sums"`
	bus.Position
}

func (m *manifest) saved() bool { return len(m.Sums) > 0 }

func manifestSubject(number int) string { return schema.StateSubject("chain", number, "m") }

// manifest returns the newest manifest of a shard; or zero.
func (f *fleet) manifest(number int) (m manifest) {
	f.t.Helper()
	if raw := f.rawManifest(number); raw != nil {
		if err := json.Unmarshal(raw, &m); err != nil {
			f.t.Fatal(err)
		}
	}
	return m
}

func (f *fleet) rawManifest(number int) []byte {
	f.t.Helper()
	states, err := f.admin.Stream(f.t.Context(), schema.StateStream)
	if err != nil {
		f.t.Fatal(err)
	}
	raw, err := states.GetLastMsgForSubject(f.t.Context(), manifestSubject(number))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return raw.Data
}

// allSaved reports whether all shards of the newest generation have a saved state.
func (f *fleet) allSaved() bool {
	return !slices.ContainsFunc(f.topo.Numbers(), func(number int) bool { m := f.manifest(number); return !m.saved() })
}

// damage writes over the first part of a shard's state.
func (f *fleet) damage(number int) {
	f.t.Helper()
	m := f.manifest(number)
	subject := schema.StateSubject("chain", number, "p."+m.Parts+".0")
	if _, err := f.admin.Publish(f.t.Context(), subject, []byte("damaged")); err != nil {
		f.t.Fatal(err)
	}
}

// lease is a key of the lease bucket.
type lease struct {
	Instance string `json:"instance"`
	Refuses  []int  `json:"refuses"`
}

// leases returns the keys of the lease bucket that begin with prefix.
func (f *fleet) leases(prefix string) map[string]lease {
	f.t.Helper()
	kv, err := f.admin.KeyValue(f.t.Context(), schema.LeaseBucket)
	if err != nil {
		f.t.Fatal(err)
	}
	keys, err := kv.Keys(f.t.Context())
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		f.t.Fatal(err)
	}
	all := map[string]lease{}
	for _, key := range keys {
		if entry, err := kv.Get(f.t.Context(), key); err == nil && strings.HasPrefix(key, prefix) {
			var l lease
			if err := json.Unmarshal(entry.Value(), &l); err != nil {
				f.t.Fatal(err)
			}
			all[strings.TrimPrefix(key, prefix)] = l
		}
	}
	return all
}

// refused reports whether a member of the group refuses a shard.
func (f *fleet) refused() bool {
	for _, l := range f.leases("m.chain.") {
		if len(l.Refuses) > 0 {
			return true
		}
	}
	return false
}

// undisturbed returns the state of a reader that reads each shard from its beginning.
func (f *fleet) undisturbed() map[int][]byte {
	states := map[int][]byte{}
	for _, shard := range f.topo.Numbers() {
		fold := newChain()
		r, stop := start(f.t, f.admin, fold, ReaderOptions{Shard: shard})
		jsStream, err := f.admin.Stream(f.t.Context(), schema.StreamName(shard))
		if err != nil {
			f.t.Fatal(err)
		}
		wait(f.t, r, jsStream.CachedInfo().State.LastSeq)
		stop()
		if states[shard], err = r.State(fold); err != nil {
			f.t.Fatal(err)
		}
	}
	return states
}

func (f *fleet) expect(states map[int][]byte) {
	f.t.Helper()
	for shard, want := range f.undisturbed() {
		if !bytes.Equal(states[shard], want) {
			f.t.Errorf("shard %d: the state that was saved is not that of an undisturbed run:\n%x\n%x", shard,
				states[shard], want)
		}
	}
	f.expectSums(states, newChain)
}

// expectSums compares the states with the published batches.
func (f *fleet) expectSums(states map[int][]byte, newFold func() Stateful) {
	f.t.Helper()
	sums := map[string]uint64{}
	for _, state := range states {
		fold := newFold().(*chain)
		if len(state) == 0 {
			continue
		}
		if err := NewReader(ReaderOptions{}, f.admin, fold, slog.New(slog.DiscardHandler)).restore(state, fold,
			nil); err != nil {
			f.t.Error(err)
		}
		for id, sum := range fold.hosts {
			sums[id.Host] = sum
		}
	}
	if !maps.Equal(sums, f.sums) {
		f.t.Errorf("the states hold %v, want %v", sums, f.sums)
	}
}

func (i *instance) shards() (list []int) {
	i.Each(func(shard int, _ Stateful) { list = append(list, shard) })
	return list
}

// finish runs one more instance until it has folded everything.
func (f *fleet) finish() {
	f.t.Helper()
	last := f.instance("last", newChain)
	eventually(f.t, "all shards are owned", func() bool { return len(last.shards()) == f.topo.Shards })
	f.settled([]*instance{last})
	last.stop()
}

// reader returns the reader of an owned shard, or nil.
func (i *instance) reader(number int) *Reader {
	for _, o := range i.owned() {
		if o.Shard == number {
			return o.Reader.(*statefulReader).reader
		}
	}
	return nil
}

// sums adds the batches that are applied, missing and unseen in the shards of a topology.
func (i *instance) sums(t schema.Topology) (sum Stats) {
	for _, number := range t.Numbers() {
		if r := i.reader(number); r != nil {
			s := r.Stats()
			sum.Batches, sum.Missing, sum.Retention = sum.Batches+s.Batches, sum.Missing+s.Missing,
				sum.Retention+s.Retention
		}
	}
	return sum
}
