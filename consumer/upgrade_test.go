package consumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// formed makes chains that write a form and read all up to it.
func formed(form byte) func() Stateful {
	return func() Stateful { return &chain{hosts: map[hostID]uint64{}, form: form} }
}

// members are the instances that are there.
func (f *fleet) members() []member {
	f.t.Helper()
	l, err := openLeases(f.t.Context(), f.admin, "chain", "test")
	if err != nil {
		f.t.Fatal(err)
	}
	members, _, err := l.look(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return members
}

// TestRollingUpgrade: instances of an older program are replaced by newer ones, one by one, while hosts publish and the
// streams let go of what was folded: a state that is rebuilt would lack it. Old instances meet newer states and leave them alone.
func TestRollingUpgrade(t *testing.T) {
	const shards, hosts, size = 6, 24, 3
	f := newFleet(t, shards)
	publish := func(batches int) {
		for i := range batches {
			f.send(fmt.Sprint("h", i%hosts))
		}
	}
	// settled is when every shard is owned and all that was sent is folded.
	settled := func(running []*instance) {
		t.Helper()
		eventually(t, "all is folded", func() bool {
			sums := map[string]uint64{}
			for _, i := range running {
				i.Each(func(_ int, fold Stateful) {
					c := fold.(*chain)
					c.mu.Lock()
					defer c.mu.Unlock()
					for id, sum := range c.hosts {
						sums[id.host] = sum
					}
				})
			}
			for host, sum := range f.sums {
				if sums[host] != sum {
					return false
				}
			}
			return true
		})
	}
	// forget empties the streams once all of it is in a checkpoint.
	forget := func(running []*instance) {
		t.Helper()
		settled(running)
		for _, shard := range f.topo.Numbers() {
			store := &checkpoints{js: f.admin, fold: "chain", shard: shard}
			jsStream, err := f.admin.Stream(t.Context(), schema.StreamName(shard))
			if err != nil {
				t.Fatal(err)
			}
			last := jsStream.CachedInfo().State.LastSeq
			eventually(t, "it is saved", func() bool {
				m, err := store.latest(t.Context())
				return err == nil && m.Sequence == last
			})
			if err := jsStream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all, running []*instance
	start := func(name string, form byte) *instance {
		i := f.instance(name, formed(form))
		all = append(all, i)
		return i
	}
	for i := range size {
		running = append(running, start(fmt.Sprint("old", i), 1))
	}
	publish(10 * hosts)
	forget(running)
	for i := range size {
		running[i].stop()
		publish(hosts)
		running[i] = start(fmt.Sprint("new", i), 2)
		eventually(t, "it has its part", func() bool { return len(running[i].shards()) == shards/size })
		publish(hosts)
		forget(running)
		if i > 0 {
			continue
		}
		running[0].stop() // the new one is gone again: the old ones find what it has saved
		eventually(t, "old instances leave its states alone", func() bool {
			return slices.ContainsFunc(f.members(), func(m member) bool { return len(m.refuses) > 0 })
		})
		publish(hosts)
		running[0] = start("new-again", 2)
		forget(running)
	}
	publish(hosts)
	settled(running)
	for _, r := range running {
		r.stop()
	}
	for _, i := range all {
		if n := i.counters.rebuilt.Load(); n != 0 {
			t.Errorf("%s rebuilt %d states", i.opts.Instance, n)
		}
	}
	f.expectSums(f.committed(), formed(2))
}

// TestNewerState: an older instance waits for one that can read the state, and when none comes rebuilds it from the stream.
func TestNewerState(t *testing.T) {
	f := newFleet(t, 1)
	for range 10 {
		f.send("h")
	}
	newer := f.instance("newer", formed(2))
	eventually(t, "it is saved", func() bool { return newer.counters.commits.Load() > 0 })
	newer.stop()
	f.send("h")
	began := time.Now()
	older := f.instance("older", formed(1))
	eventually(t, "it is saved", func() bool { return older.counters.commits.Load() > 0 })
	if waited := time.Since(began); waited < waitForNewer*f.lease {
		t.Errorf("it was rebuilt after %s", waited)
	}
	if n := older.counters.rebuilt.Load(); n != 1 {
		t.Errorf("%d states were rebuilt, want 1", n)
	}
	older.stop()
	f.expect(f.committed())
}

// TestManifestOfANewerProgram: its form is not known, so nothing of it is used or written over before the wait is over.
func TestManifestOfANewerProgram(t *testing.T) {
	f := newFleet(t, 1)
	f.send("h")
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	manifest := fmt.Appendf(nil, `{"form":%d,"epoch":7,"elsewhere":true}`, manifestForm+1)
	if _, err := f.admin.Publish(t.Context(), store.subject("m"), manifest); err != nil {
		t.Fatal(err)
	}
	c := f.instance("older", formed(1))
	eventually(t, "it is left alone", func() bool {
		return slices.ContainsFunc(f.members(), func(m member) bool { return slices.Equal(m.refuses, []int{0}) })
	})
	if raw, err := store.get(t.Context(), "m"); err != nil || string(raw.Data) != string(manifest) {
		t.Errorf("the manifest was written over: %s, %v", raw.Data, err)
	}
	eventually(t, "it is saved", func() bool { return c.counters.commits.Load() > 0 })
	m, err := store.latest(t.Context())
	if err != nil || m.Epoch <= 7 || c.counters.rebuilt.Load() != 1 {
		t.Errorf("epoch %d, %d rebuilt, %v", m.Epoch, c.counters.rebuilt.Load(), err)
	}
	c.stop()
	f.expect(f.committed())
}

// TestWayBackAfterATakeOver: an older program that is alone with what a newer one has taken over from a closed generation rebuilds
// what the streams of the present one hold.
func TestWayBackAfterATakeOver(t *testing.T) {
	f := newFleet(t, 1)
	f.batches(3, 9)
	f.topo = reshard(t, f.admin, 2)
	newer := f.instance("newer", formed(2))
	eventually(t, "it has taken over", func() bool {
		return !slices.ContainsFunc(f.topo.Numbers(), func(shard int) bool { m := f.manifest(shard); return !m.saved() })
	})
	newer.stop()
	f.batches(3, 9)
	older := f.instance("older", formed(1))
	var sum Stats
	eventually(t, "what came since is folded", func() bool {
		sum = Stats{}
		for _, o := range older.all() {
			if r, _, _ := o.view(); r != nil && f.topo.Has(o.shard) {
				s := r.Stats()
				sum.Batches, sum.Missing, sum.Retention = sum.Batches+s.Batches, sum.Missing+s.Missing, sum.Retention+s.Retention
			}
		}
		return sum.Batches == 9
	})
	if n := older.counters.rebuilt.Load(); n != 2 || sum.Missing != 0 || sum.Retention != 9 {
		t.Errorf("%d states were rebuilt, %d batches missing and %d unseen, want 2, 0 and 9", n, sum.Missing, sum.Retention)
	}
	older.stop()
}
