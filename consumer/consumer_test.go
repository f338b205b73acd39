package consumer

import (
	"bytes"
	"context"
	"encoding/binary"
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

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/shard"
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
	id := hostID{Cluster: b.Cluster, Host: b.Host}
	c.hosts[id] = link(c.hosts[id], b.Run, b.Seq)
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
	for _, id := range slices.SortedFunc(maps.Keys(c.hosts),
		func(a, b hostID) int { return bytes.Compare([]byte(a.Host), []byte(b.Host)) }) {
		data := binary.LittleEndian.AppendUint64([]byte{c.form}, c.hosts[id])
		if err := yield(Section{Cluster: id.Cluster, Host: id.Host, Data: data}); err != nil {
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
	id := hostID{Cluster: s.Cluster, Host: s.Host}
	if _, known := c.hosts[id]; known {
		return fmt.Errorf("%w: host %s twice", snapshot.ErrDamaged, s.Host)
	}
	c.hosts[id] = binary.LittleEndian.Uint64(s.Data[1:])
	return nil
}

// TestEachBatchCountsOnce: instances start, stop and are killed at any moment, and the states are those of one
// undisturbed reader.
func TestEachBatchCountsOnce(t *testing.T) {
	t.Parallel()
	newFleet(t, 4).countOnce(100)
}

// countOnce publishes batches while instances start, die and stop at random.
func (f *fleet) countOnce(steps int) {
	commits := make(chan *nats.Msg, 1<<12) // claims too
	manifests := strings.Replace(manifestSubject(0), ".0.", ".*.", 1)
	if _, err := f.admin.Conn().ChanSubscribe(manifests, commits); err != nil {
		f.t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var running []*instance
	for step := range steps {
		for range 5 {
			f.send(fmt.Sprintf("h%d", random.IntN(12)))
		}
		switch what := random.IntN(20); {
		case len(running) < 3 && (what < 3 || len(running) == 0):
			running = append(running, f.instance(fmt.Sprintf("i%d", step), newChain))
		case what == 18:
			i := random.IntN(len(running))
			running[i].kill()
			running = slices.Delete(running, i, i+1)
		case what == 19:
			i := random.IntN(len(running))
			running[i].stop()
			running = slices.Delete(running, i, i+1)
		}
		if step%8 == 0 && len(running) > 0 { // wait until an instance commits some of these batches
			for len(commits) > 0 {
				<-commits
			}
			<-commits
		}
	}
	for _, i := range running {
		i.stop()
	}
	f.finish()
	f.expect(f.committed())
}

// TestInvalidFoldNameIsRefused: such a name would be changed for subjects and keys, and could become the name of
// another fold.
func TestInvalidFoldNameIsRefused(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"leak": true, "my-Fold_2": true, "": false, "my.fold": false,
		"my fold": false, "a*": false, "a/b": false, "Größe": false} {
		if err := shard.CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	c := New(Options{}, nil, func() Stateful { return named{newChain().(*chain), "my.fold"} },
		slog.New(slog.DiscardHandler))
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"my.fold"`) {
		t.Errorf("Run gave %v", err)
	}
}

type named struct {
	*chain
	name string
}

func (n named) Name() string { return n.name }

// TestShardsMoveToOtherInstances: after a kill when the leases expire, and at once after a stop.
func TestShardsMoveToOtherInstances(t *testing.T) {
	t.Parallel()
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
	if n := c.Counters().Rebuilt.Load(); n != 0 {
		t.Errorf("%d states were rebuilt", n)
	}
	eventually(t, "everything is folded", func() bool {
		n := 0
		c.Each(func(_ int, fold Stateful) {
			ch := fold.(*chain)
			ch.mu.Lock()
			defer ch.mu.Unlock()
			for id, sum := range ch.hosts {
				if sum == f.sums[id.Host] {
					n++
				}
			}
		})
		return n == 20
	})
	c.stop()
	f.expect(f.committed())
}

// TestInstancesSurviveServerRestart: a server without a cluster stops, for shorter or longer than a lease, and
// keeps only its store.
func TestInstancesSurviveServerRestart(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(a, b *instance) bool{
		"at once":          func(_, _ *instance) bool { return true },
		"after the leases": func(a, b *instance) bool { return len(a.shards())+len(b.shards()) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bustest.NewServer(t, "")
			f := newFleetOn(t, s, 2)
			a, b := f.instance("a", newChain), f.instance("b", newChain)
			both := func() bool { return len(a.shards()) == 1 && len(b.shards()) == 1 }
			eventually(t, "each has a shard", both)
			for i := range 20 {
				f.send(fmt.Sprintf("h%d", i%5))
			}
			s.Stop()
			eventually(t, "the time of the outage", func() bool { return away(a, b) })
			s.Start()
			eventually(t, "the bus answers", func() bool {
				_, err := f.admin.AccountInfo(t.Context())
				return err == nil
			})
			for i := range 20 {
				f.send(fmt.Sprintf("h%d", i%5))
			}
			eventually(t, "all is committed",
				func() bool { return maps.EqualFunc(f.committed(), f.undisturbed(), bytes.Equal) })
			eventually(t, "each has a shard again", both)
		})
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

// TestPanicInRestoreRebuilds: a fold that panics in Snapshot keeps folding; after a panic in Restore its state is
// rebuilt.
func TestPanicInRestoreRebuilds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.send("h")
	first := f.instance("first", func() Stateful { return nervous{chain: newChain().(*chain), restoring: true} })
	eventually(t, "it is saved", func() bool { return first.Counters().Commits.Load() > 0 })
	first.stop()
	saving := f.instance("saving",
		func() Stateful { return nervous{chain: newChain().(*chain), restoring: true, saving: true} })
	f.send("h")
	eventually(t, "it is rebuilt and not saved", func() bool {
		return saving.Counters().Rebuilt.Load() == 1 && saving.Counters().Failed.Load() > 0
	})
	saving.stop()
	last := f.instance("last", newChain)
	eventually(t, "it is saved", func() bool { return last.Counters().Commits.Load() > 0 })
	last.stop()
	f.finish()
	f.expect(f.committed())
}

// TestDamagedStateIsRebuilt: a part that differs from what its manifest says is not restored.
func TestDamagedStateIsRebuilt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.rebuild = f.lease / 2
	for range 10 {
		f.send("h")
	}
	c := f.instance("one", newChain)
	eventually(t, "it is saved", func() bool { return c.Counters().Commits.Load() > 0 })
	c.stop()
	f.damage(0)
	c = f.instance("two", newChain)
	eventually(t, "it is rebuilt and saved",
		func() bool { return c.Counters().Rebuilt.Load() == 1 && c.Counters().Commits.Load() > 0 })
	c.stop()
	f.finish()
	f.expect(f.committed())
}

// TestOwnerKeyNamesOwners: the metadata of JetStream consumers tell owners from other readers.
func TestOwnerKeyNamesOwners(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.instance("a", newChain)
	r, _ := start(t, f.bus.Connect(), newChain(), ReaderOptions{})
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

// TestStopDuringCommitCommitsAgain: the checkpoint that it leaves can be restored.
func TestStopDuringCommitCommitsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	for i := range 12 {
		c := f.instance("one", newChain)
		f.send("h")
		eventually(t, "it folds", func() bool { return len(c.shards()) == 1 })
		time.Sleep(time.Duration(i) * 5 * time.Millisecond) // somewhere between two checkpoints
		f.send("h")
		c.stop()
		if n := c.Counters().Rebuilt.Load(); n != 0 {
			t.Fatalf("start %d found a state that it had to rebuild", i)
		}
	}
	f.finish() // who is stopped may leave the last message to the next
	f.expect(f.committed())
}

// TestInvalidManifestIsRebuilt: lengths and names that no part can have count as damage.
func TestInvalidManifestIsRebuilt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.send("h")
	for _, tt := range []struct {
		parts string
		bytes int
	}{{"7.1", -5}, {"7.1", 0}, {"7.1", 512<<10 + 1}, {"7.1", 1 << 62}, {"", 5}, {"7..1", 5}, {"7.*", 5}, {"7.1 2", 5}} {
		manifest := fmt.Sprintf(
			`{"form":1,"owner":"one","epoch":7,"parts":%q,"sums":[{"bytes":%d,"crc32c":1}],"sequence":3}`,
			tt.parts, tt.bytes)
		if _, err := f.admin.Publish(t.Context(), manifestSubject(0), []byte(manifest)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := shard.Saved(ctx, f.admin, "chain", 0); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%+v: %v", tt, err)
		}
		cancel()
	}
	i := f.instance("two", newChain)
	eventually(t, "the state is rebuilt", func() bool { return i.Counters().Commits.Load() > 0 })
	if n := i.Counters().Rebuilt.Load(); n != 1 {
		t.Errorf("%d states were rebuilt", n)
	}
	i.stop()
	f.finish()
	f.expect(f.committed())
}
