package leak

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

func shortKeep() *Tracker { return New(Config{KeepEnded: time.Minute, TopScan: 20}) }

// view is all that a Tracker shows.
func view(tb testing.TB, t *Tracker) []byte {
	text, err := json.MarshalIndent(struct {
		Report Report
		Top    []Allocation
	}{t.Report(), t.Top(3)}, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return append(text, consumertest.Page(tb, t)...)
}

func TestResume(t *testing.T) {
	t.Run("recorded run", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Recorded(t), 9, shortKeep, view)
	})
	t.Run("more than there are series", func(t *testing.T) {
		consumertest.Resumes(t, consumertest.Crowd(t), 4, shortKeep, view)
		fold := shortKeep()
		consumertest.Take(t, fold, consumertest.Crowd(t)...)
		if !strings.Contains(string(consumertest.Page(t, fold)), `comm="other"`) {
			t.Error("there was a series for all")
		}
	})
	for seed := range uint64(4) {
		t.Run("traffic", func(t *testing.T) {
			consumertest.Resumes(t, consumertest.Traffic(t, seed, 120), 9, shortKeep, view)
		})
	}
}

func TestHostile(t *testing.T) {
	fold := shortKeep()
	steps := consumertest.Traffic(t, 3, 20)
	consumertest.Take(t, fold, steps[:12]...)
	consumertest.Hostile(t, consumertest.Sections(t, fold), shortKeep, view, steps[12:]...)
}

// The steps are worth something only if the state holds all that it can.
func TestTrafficHasEverything(t *testing.T) {
	fold := shortKeep()
	var seen struct{ holders, pools, mappings, contexts, multicasts, tokens, samples, detached, unfreed, withContext, keptByMapping int }
	for _, step := range consumertest.Traffic(t, 1, 200) {
		consumertest.Take(t, fold, step)
		for _, p := range fold.table.All() {
			s := &p.State
			seen.holders += int(s.holders)
			seen.pools += len(s.pools)
			seen.mappings += len(s.mappings)
			seen.contexts += len(s.contexts) - 1
			seen.tokens += len(s.host.exports.tokens)
			seen.samples += len(s.samples)
			seen.unfreed += int(s.unfreed.allocations)
			seen.withContext += int(s.withContext.allocations)
			if s.host.boots[s.host.boot] != s.host {
				seen.detached++
			}
			for _, g := range s.mappings {
				if g.memory != 0 && fold.slab.at(g.memory).refs == 0 {
					seen.keptByMapping++
				}
			}
			for _, i := range (&saver{Tracker: fold}).multicasts(s) {
				if fold.slab.at(i).what == multicast {
					seen.multicasts++
				}
			}
		}
	}
	for _, n := range []int{
		seen.holders, seen.pools, seen.mappings, seen.contexts, seen.multicasts, seen.tokens, seen.samples, seen.detached,
		seen.unfreed, seen.withContext, seen.keptByMapping,
	} {
		if n == 0 {
			t.Fatalf("got %+v", seen)
		}
	}
}

func TestSplit(t *testing.T) {
	consumertest.Splits(t, consumertest.Traffic(t, 9, 200), shortKeep, func(fold *Tracker, id snapshot.HostID) []byte {
		all := slices.DeleteFunc(fold.Report().Processes, func(p Process) bool {
			return p.ID.Cluster != id.Cluster || p.ID.Host != id.Host
		})
		text, _ := json.MarshalIndent(all, "", " ")
		return text
	})
}

// What is left when a host is forgotten is what the others made, and all that the host's processes counted as other is unfreed.
func TestForgottenHost(t *testing.T) {
	for name, steps := range map[string][]consumertest.Step{"traffic": consumertest.Traffic(t, 5, 200), "crowd": consumertest.Crowd(t)} {
		t.Run(name, func(t *testing.T) {
			fold := shortKeep()
			consumertest.Take(t, fold, steps...)
			before := consumertest.Sections(t, fold)
			gone := before[1]
			fold.Forget(gone.Cluster, gone.Host)
			after := consumertest.Sections(t, fold)
			for i, s := range after[1:] {
				if len(after) != len(before)-1 || s.Host != before[i+2].Host || !bytes.Equal(s.Data, before[i+2].Data) {
					t.Errorf("section %d of %d, of host %s, is not what it was", i, len(after), s.Host)
				}
			}
			balanced(t, fold)
			if got, want := view(t, consumertest.Restore(t, shortKeep(), after)), view(t, fold); !bytes.Equal(got, want) {
				t.Errorf("restored, it shows\n%s\nwant\n%s", got, want)
			}
			if id := (snapshot.HostID{Cluster: gone.Cluster, Host: gone.Host}); len(fold.table.Of(id)) > 0 || strings.Contains(string(consumertest.Page(t, fold)), `hostname="`+gone.Host+`"`) && name == "crowd" {
				t.Errorf("%s is there still", gone.Host)
			}
			consumertest.Take(t, fold, steps...) // also what the host says, which is a new one
			for _, s := range after[1:] {
				fold.Forget(s.Cluster, s.Host)
			}
			fold.Forget(gone.Cluster, gone.Host)
			if len(fold.machines)+len(fold.pids)+fold.table.Len()+fold.slabLive()+len(fold.workloads.index)+fold.qualities > 0 {
				t.Errorf("%d hosts, %d PIDs, %d processes, %d allocations, %d workloads are left when all hosts are gone",
					len(fold.machines), len(fold.pids), fold.table.Len(), fold.slabLive(), len(fold.workloads.index))
			}
			balanced(t, fold)
		})
	}
}

func TestGoldenSnapshots(t *testing.T) {
	fold := shortKeep()
	consumertest.Take(t, fold, consumertest.Traffic(t, 4, 8)...)
	consumertest.Golden(t, *update, int(form.Version), fold, shortKeep, view)
}

func FuzzRestore(f *testing.F) { consumertest.FuzzRestore(f, shortKeep, view) }
