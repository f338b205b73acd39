package consumer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// chain is a fold whose state of a host depends on every batch and on their order.
type chain struct {
	mu    sync.Mutex
	hosts map[hostID]uint64
	form  byte
}

func newChain() Stateful { return &chain{hosts: map[hostID]uint64{}, form: 1} }

func (c *chain) Name() string         { return "chain" }
func (c *chain) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory} }

func (c *chain) Apply(b *schema.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Kind == schema.KindHost {
		return nil
	}
	c.hosts[hostID{b.Cluster, b.Host}] = link(c.hosts[hostID{b.Cluster, b.Host}], b.Run, b.Seq)
	return nil
}

func link(before, run, seq uint64) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, []uint64{before, run, seq})
	return h.Sum64()
}

func (c *chain) Snapshot(yield func(Section) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(c.hosts), func(a, b hostID) int { return bytes.Compare([]byte(a.host), []byte(b.host)) }) {
		data := binary.LittleEndian.AppendUint64([]byte{c.form}, c.hosts[id])
		if err := yield(Section{Cluster: id.cluster, Host: id.host, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) Restore(s Section) error {
	if len(s.Data) != 9 {
		return snapshot.ErrDamaged
	}
	if s.Data[0] > c.form {
		return fmt.Errorf("%w: form %d", snapshot.ErrVersion, s.Data[0])
	}
	id := hostID{s.Cluster, s.Host}
	if _, known := c.hosts[id]; known {
		return fmt.Errorf("%w: host %s twice", snapshot.ErrDamaged, s.Host)
	}
	c.hosts[id] = binary.LittleEndian.Uint64(s.Data[1:])
	return nil
}

// fleet is a bus with shards, leases and room for states.
type fleet struct {
	t     *testing.T
	bus   *bus
	admin jetstream.JetStream
	topo  schema.Topology
	lease time.Duration
	log   page
	seqs  map[string]uint64
	sums  map[string]uint64 // what the chain of each host must be
}

func newFleet(t *testing.T, shards int) *fleet {
	f := &fleet{t: t, bus: newBus(t), lease: 2 * time.Second, topo: schema.Topology{Generation: 1, Shards: shards}, seqs: map[string]uint64{}, sums: map[string]uint64{}}
	f.admin = f.bus.connect()
	if err := EnsureStreams(t.Context(), f.admin, StreamOptions{Shards: shards, MaxBytes: int64(shards) << 26, Lease: f.lease}); err != nil {
		t.Fatal(err)
	}
	return f
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
	stop func() // gracefully
	kill func() // as if the process were gone
}

func (f *fleet) instance(name string, fold func() Stateful) *instance {
	js := f.bus.connect()
	c := New(Options{Instance: name, Checkpoint: 50 * time.Millisecond, Settle: 50 * time.Millisecond}, js, fold, slog.New(slog.NewJSONHandler(&f.log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = c.Run(ctx)
	}()
	i := &instance{Consumer: c, js: js}
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

// committed is the saved state of every shard, as bytes.
func (f *fleet) committed() map[int][]byte {
	states := map[int][]byte{}
	for _, shard := range f.topo.Numbers() {
		store := &checkpoints{js: f.admin, fold: "chain", shard: shard}
		for again := true; again; {
			m, err := store.latest(f.t.Context())
			if err != nil {
				f.t.Fatal(err)
			}
			states[shard], err = store.load(f.t.Context(), &m, 0)
			now, lookErr := store.latest(f.t.Context())
			again = errors.Is(err, errDamaged) && lookErr == nil && now.Commit != m.Commit // its parts were written over meanwhile
			if err != nil && !again {
				f.t.Fatal(err)
			}
		}
	}
	return states
}

// undisturbed is what one reader makes of each shard from its beginning.
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
		if states[shard], err = r.save(nil, fold); err != nil {
			f.t.Fatal(err)
		}
	}
	return states
}

func (f *fleet) expect(states map[int][]byte) {
	f.t.Helper()
	for shard, want := range f.undisturbed() {
		if !bytes.Equal(states[shard], want) {
			f.t.Errorf("shard %d: the state that was saved is not that of an undisturbed run:\n%x\n%x", shard, states[shard], want)
		}
	}
	f.expectSums(states, newChain)
}

// expectSums compares what the states hold with what was sent.
func (f *fleet) expectSums(states map[int][]byte, newFold func() Stateful) {
	f.t.Helper()
	sums := map[string]uint64{}
	for _, state := range states {
		fold := newFold().(*chain)
		if len(state) == 0 {
			continue
		}
		if err := NewReader(ReaderOptions{}, f.admin, fold, slog.New(slog.DiscardHandler)).restore(state, fold, nil); err != nil {
			f.t.Error(err)
		}
		for id, sum := range fold.hosts {
			sums[id.host] = sum
		}
	}
	if !maps.Equal(sums, f.sums) {
		f.t.Errorf("the states hold %v, want %v", sums, f.sums)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (i *instance) shards() (list []int) {
	i.Each(func(shard int, _ Stateful) { list = append(list, shard) })
	return list
}

// finish has one more instance fold what is left.
func (f *fleet) finish() {
	f.t.Helper()
	last := f.instance("last", newChain)
	eventually(f.t, "all shards are owned", func() bool { return len(last.shards()) == f.topo.Shards })
	eventually(f.t, "everything is folded", func() bool {
		sums := map[string]uint64{}
		last.Each(func(_ int, fold Stateful) {
			c := fold.(*chain)
			c.mu.Lock()
			defer c.mu.Unlock()
			for id, sum := range c.hosts {
				sums[id.host] = sum
			}
		})
		return maps.Equal(sums, f.sums)
	})
	last.stop()
}

// TestEffectivelyOnce: consumers come, go and die at any moment, and the states are those of one undisturbed run.
func TestEffectivelyOnce(t *testing.T) {
	f := newFleet(t, 4)
	random := rand.New(rand.NewPCG(1, 2))
	var running []*instance
	started := 0
	for step := range 400 {
		for range 5 {
			f.send(fmt.Sprintf("h%d", random.IntN(12)))
		}
		switch what := random.IntN(40); {
		case len(running) < 3 && (what < 6 || len(running) == 0):
			started++
			running = append(running, f.instance(fmt.Sprintf("i%d", started), newChain))
		case what == 38 && len(running) > 0:
			i := random.IntN(len(running))
			running[i].kill()
			running = slices.Delete(running, i, i+1)
		case what == 39 && len(running) > 0:
			i := random.IntN(len(running))
			running[i].stop()
			running = slices.Delete(running, i, i+1)
		}
		if step%4 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, i := range running {
		i.stop()
	}
	f.finish()
	f.expect(f.committed())
}

// TestFoldNames: a name that would be changed for a subject, and then be another fold's, is refused, and what no key may have.
func TestFoldNames(t *testing.T) {
	for name, ok := range map[string]bool{"leak": true, "my-Fold_2": true, "": false, "my.fold": false, "my fold": false, "a*": false, "a/b": false, "Größe": false} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	c := New(Options{}, nil, func() Stateful { return named{newChain().(*chain), "my.fold"} }, slog.New(slog.DiscardHandler))
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"my.fold"`) {
		t.Errorf("Run gave %v", err)
	}
}

type named struct {
	*chain
	name string
}

func (n named) Name() string { return n.name }

// TestZombie: an instance that was thought dead cannot write over what its successor has written.
func TestZombie(t *testing.T) {
	f := newFleet(t, 1)
	f.send("h")
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	old, err := store.claim(t.Context(), "old", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.commit(t.Context(), &old, old, []byte("first")); err != nil {
		t.Fatal(err)
	}
	successor, err := store.claim(t.Context(), "successor", false)
	if err != nil || successor.Epoch != old.Epoch+1 {
		t.Fatalf("claim: %v, epoch %d after %d", err, successor.Epoch, old.Epoch)
	}
	if err := store.commit(t.Context(), &old, old, bytes.Repeat([]byte("zombie"), partBytes)); err == nil {
		t.Error("the zombie may commit")
	}
	if state, err := store.load(t.Context(), &successor, 0); err != nil || string(state) != "first" {
		t.Errorf("the successor loads %.20q, %v", state, err)
	}
	if err := store.commit(t.Context(), &successor, successor, []byte("second")); err != nil {
		t.Fatal(err)
	}
	latest, err := store.latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := store.load(t.Context(), &latest, 0); err != nil || string(state) != "second" {
		t.Errorf("the state is %.20q, %v", state, err)
	}
}

// TestZombieOfAnotherBus: an instance that owned a shard before all was removed and set up again can write nothing.
func TestZombieOfAnotherBus(t *testing.T) {
	f := newFleet(t, 1)
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	old, err := store.claim(t.Context(), "old", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveStreams(t.Context(), f.admin); err != nil {
		t.Fatal(err)
	}
	ensure(t, f.admin)
	present := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	owner, err := present.claim(t.Context(), "owner", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.commit(t.Context(), &old, old, []byte("zombie")); !errors.Is(err, errFenced) {
		t.Errorf("the zombie's commit: %v", err)
	}
	if err := present.commit(t.Context(), &owner, owner, []byte("owner")); err != nil {
		t.Error(err)
	}
}

// TestFailover: the shards of an instance that dies go to the others, and those of one that stops go at once.
func TestFailover(t *testing.T) {
	f := newFleet(t, 6)
	a, b := f.instance("a", newChain), f.instance("b", newChain)
	even := func() bool { return len(a.shards()) == 3 && len(b.shards()) == 3 }
	eventually(t, "both have three shards", even)
	for i := range 60 {
		f.send(fmt.Sprintf("h%d", i%20))
	}
	a.kill()
	eventually(t, "b has all six", func() bool { return len(b.shards()) == 6 })
	for i := range 60 {
		f.send(fmt.Sprintf("h%d", i%20))
	}
	c := f.instance("c", newChain)
	eventually(t, "c has three", func() bool { return len(c.shards()) == 3 && len(b.shards()) == 3 })
	b.stop()
	eventually(t, "c has all six", func() bool { return len(c.shards()) == 6 })
	if n := c.counters.rebuilt.Load(); n != 0 {
		t.Errorf("%d states were rebuilt", n)
	}
	eventually(t, "everything is folded", func() bool {
		n := 0
		c.Each(func(_ int, fold Stateful) {
			ch := fold.(*chain)
			ch.mu.Lock()
			defer ch.mu.Unlock()
			for id, sum := range ch.hosts {
				if sum == f.sums[id.host] {
					n++
				}
			}
		})
		return n == 20
	})
	c.stop()
	f.expect(f.committed())
}

// TestServerRestarts: a server without a cluster ends, for longer than a lease or shorter, and comes back with its store alone.
// The instances that were there go on.
func TestServerRestarts(t *testing.T) {
	for name, away := range map[string]func(a, b *instance) bool{
		"at once":          func(_, _ *instance) bool { return true },
		"after the leases": func(a, b *instance) bool { return len(a.shards())+len(b.shards()) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2)
			a, b := f.instance("a", newChain), f.instance("b", newChain)
			both := func() bool { return len(a.shards()) == 1 && len(b.shards()) == 1 }
			eventually(t, "each has a shard", both)
			for i := range 20 {
				f.send(fmt.Sprintf("h%d", i%5))
			}
			f.bus.stop()
			eventually(t, "the time of the outage", func() bool { return away(a, b) })
			f.bus.start()
			eventually(t, "the bus answers", func() bool {
				_, err := f.admin.AccountInfo(t.Context())
				return err == nil
			})
			for i := range 20 {
				f.send(fmt.Sprintf("h%d", i%5))
			}
			eventually(t, "all is committed", func() bool { return maps.EqualFunc(f.committed(), f.undisturbed(), bytes.Equal) })
			eventually(t, "each has a shard again", both)
		})
	}
}

// TestNoLeases: a bus without the bucket is told with the remedy.
func TestNoLeases(t *testing.T) {
	f := newFleet(t, 1)
	if err := f.admin.DeleteKeyValue(t.Context(), schema.LeaseBucket); err != nil {
		t.Fatal(err)
	}
	if _, err := openLeases(t.Context(), f.admin, "chain", "a"); err == nil || !strings.Contains(err.Error(), "gputap stream init") {
		t.Errorf("it says %v", err)
	}
}

// nervous is a chain that panics over states.
type nervous struct {
	*chain
	saving, restoring bool
}

func (n nervous) Snapshot(yield func(Section) error) error {
	if n.saving {
		panic("saving")
	}
	return n.chain.Snapshot(yield)
}

func (n nervous) Restore(s Section) error {
	if n.restoring {
		panic("restoring")
	}
	return n.chain.Restore(s)
}

// TestFoldThatPanicsOverItsState: it goes on folding, and what cannot be taken up is rebuilt.
func TestFoldThatPanicsOverItsState(t *testing.T) {
	f := newFleet(t, 1)
	f.send("h")
	first := f.instance("first", func() Stateful { return nervous{chain: newChain().(*chain), restoring: true} })
	eventually(t, "it is saved", func() bool { return first.counters.commits.Load() > 0 })
	first.stop()
	saving := f.instance("saving", func() Stateful { return nervous{chain: newChain().(*chain), restoring: true, saving: true} })
	f.send("h")
	eventually(t, "it is rebuilt and not saved", func() bool {
		return saving.counters.rebuilt.Load() == 1 && saving.counters.failed.Load() > 0
	})
	saving.stop()
	last := f.instance("last", newChain)
	eventually(t, "it is saved", func() bool { return last.counters.commits.Load() > 0 })
	last.stop()
	f.expect(f.committed())
}

// TestDamagedState: a part that is not what the manifest says is not taken for a state.
func TestDamagedState(t *testing.T) {
	f := newFleet(t, 1)
	for range 10 {
		f.send("h")
	}
	c := f.instance("one", newChain)
	eventually(t, "it is saved", func() bool { return c.counters.commits.Load() > 0 })
	c.stop()
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	m, err := store.latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.Publish(t.Context(), store.partSubject(&m, 0), []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	c = f.instance("two", newChain)
	eventually(t, "it is rebuilt and saved", func() bool { return c.counters.rebuilt.Load() == 1 && c.counters.commits.Load() > 0 })
	c.stop()
	f.expect(f.committed())
}

// TestOwnersAreTold: JetStream tells who reads a shard as its owner from who only reads it.
func TestOwnersAreTold(t *testing.T) {
	f := newFleet(t, 1)
	f.instance("a", newChain)
	r, _ := start(t, f.bus.connect(), newChain(), ReaderOptions{})
	<-r.Ready()
	s, err := f.admin.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]int{}
	eventually(t, "both read", func() bool {
		clear(owners)
		n := 0
		for c := range s.ListConsumers(t.Context()).Info() {
			owners[c.Config.Metadata[OwnerKey]]++
			n++
		}
		return n == 2
	})
	if owners["a"] != 1 || owners[""] != 1 {
		t.Errorf("owners %v, want a and none", owners)
	}
}
