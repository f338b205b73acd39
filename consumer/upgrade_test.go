package consumer

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// formed makes chains that write a form and read all up to it.
func formed(form byte) func() Stateful {
	return func() Stateful { return &chain{hosts: map[hostID]uint64{}, form: form} }
}

// TestRollingUpgrade: newer instances replace older ones one by one, while hosts publish and retention removes all
// that was folded. No state is rebuilt: older instances leave newer states alone.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	const shards, hosts, size = 6, 24, 3
	f := newFleet(t, shards)
	publish := func(batches int) {
		for i := range batches {
			f.send(fmt.Sprint("h", i%hosts))
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
	f.forget(running)
	for i := range size {
		running[i].stop()
		publish(hosts)
		running[i] = start(fmt.Sprint("new", i), 2)
		eventually(t, "it has its part", func() bool { return len(running[i].shards()) == shards/size })
		publish(hosts)
		f.forget(running)
		if i > 0 {
			continue
		}
		running[0].stop() // the new one is gone again: the old ones find its states
		eventually(t, "old instances leave its states alone", func() bool {
			return f.refused()
		})
		publish(hosts)
		running[0] = start("new-again", 2)
		f.forget(running)
	}
	publish(hosts)
	f.settled(running)
	for _, r := range running {
		r.stop()
	}
	for _, i := range all {
		if n := i.Counters().Rebuilt.Load(); n != 0 {
			t.Errorf("%s rebuilt %d states", i.name, n)
		}
	}
	f.expectSums(f.committed(), formed(2))
}

// settled waits until every shard is owned and all that was sent is folded.
func (f *fleet) settled(running []*instance) {
	f.t.Helper()
	eventually(f.t, "all is folded", func() bool {
		sums := map[string]uint64{}
		for _, i := range running {
			i.Each(func(_ int, fold Stateful) {
				c := fold.(*chain)
				c.mu.Lock()
				defer c.mu.Unlock()
				for id, sum := range c.hosts {
					sums[id.Host] = sum
				}
			})
		}
		return maps.Equal(sums, f.sums)
	})
}

// forget empties the streams once all of it is in a checkpoint.
func (f *fleet) forget(running []*instance) {
	f.t.Helper()
	f.settled(running)
	for _, shard := range f.topo.Numbers() {
		jsStream, err := f.admin.Stream(f.t.Context(), schema.StreamName(shard))
		if err != nil {
			f.t.Fatal(err)
		}
		last := jsStream.CachedInfo().State.LastSeq
		eventually(f.t, "it is saved", func() bool { return f.manifest(shard).Sequence == last })
		if err := jsStream.Purge(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestNewerStateIsRebuiltAfterAWait: an older instance waits for a newer one; if none comes, it rebuilds the state
// from the stream.
func TestNewerStateIsRebuiltAfterAWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.rebuild = f.lease / 2
	for range 10 {
		f.send("h")
	}
	newer := f.instance("newer", formed(2))
	eventually(t, "it is saved", func() bool { return newer.Counters().Commits.Load() > 0 })
	newer.stop()
	f.send("h")
	began := time.Now()
	older := f.instance("older", formed(1))
	eventually(t, "it is saved", func() bool { return older.Counters().Commits.Load() > 0 })
	if waited := time.Since(began); waited < f.rebuild {
		t.Errorf("it was rebuilt after %s", waited)
	}
	if n := older.Counters().Rebuilt.Load(); n != 1 {
		t.Errorf("%d states were rebuilt, want 1", n)
	}
	older.stop()
	f.finish() // an instance that stops may leave the last message to the next
	f.expect(f.committed())
}

// TestNewerManifestIsLeftAlone: an instance that does not know its form neither reads nor replaces it before the
// wait is over.
func TestNewerManifestIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.rebuild = f.lease / 2
	f.send("h")
	manifest := []byte(`{"form":2,"epoch":7,"elsewhere":true}`)
	if _, err := f.admin.Publish(t.Context(), manifestSubject(0), manifest); err != nil {
		t.Fatal(err)
	}
	c := f.instance("older", formed(1))
	eventually(t, "it is left alone", func() bool {
		return f.refused()
	})
	if raw := f.rawManifest(0); string(raw) != string(manifest) {
		t.Errorf("the manifest was written over: %s", raw)
	}
	eventually(t, "it is saved", func() bool { return c.Counters().Commits.Load() > 0 })
	if m := f.manifest(0); m.Epoch <= 7 || c.Counters().Rebuilt.Load() != 1 {
		t.Errorf("epoch %d, %d rebuilt", m.Epoch, c.Counters().Rebuilt.Load())
	}
	c.stop()
	f.finish()
	f.expect(f.committed())
}

// TestDowngradeAfterReshard: an older instance rebuilds its state from the streams of the present generation.
func TestDowngradeAfterReshard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.rebuild = f.lease / 2
	f.batches(3, 9)
	f.topo = reshard(t, f.admin, 2)
	newer := f.instance("newer", formed(2))
	eventually(t, "it has taken over", func() bool {
		return f.allSaved()
	})
	newer.stop()
	f.batches(3, 9)
	older := f.instance("older", formed(1))
	var sum Stats
	eventually(t, "what came since is folded", func() bool {
		sum = older.sums(f.topo)
		return sum.Batches == 9
	})
	if n := older.Counters().Rebuilt.Load(); n != 2 || sum.Missing != 0 || sum.Retention != 9 {
		t.Errorf("%d states were rebuilt, %d batches missing and %d unseen, want 2, 0 and 9", n, sum.Missing,
			sum.Retention)
	}
	older.stop()
}
