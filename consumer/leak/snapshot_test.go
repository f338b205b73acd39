package leak

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

func shortKeep() *Tracker { return New(Config{KeepEnded: time.Minute, Window: 10 * time.Second}) }

// view returns everything that the fold shows.
func view(tb testing.TB, tracker *Tracker) string {
	tb.Helper()
	shown, err := json.MarshalIndent([]any{tracker.Report(), tracker.Top(3), tracker.Alerts()}, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return string(shown) + string(consumertest.Page(tb, tracker))
}

// The snapshot tests prove something only if the traffic reaches every part of the state.
func TestTrafficReachesAllState(t *testing.T) {
	t.Parallel()
	fold := shortKeep()
	var seen struct {
		holders, pools, mappings, contexts, multicasts, tokens, samples, detached, unfreed, withContext,
		keptByMapping int
	}
	for _, step := range consumertest.Traffic(t, 1, 200) {
		consumertest.Take(t, fold, step)
		for _, p := range fold.table.All() {
			s := &p.State
			seen.holders += int(s.holders)
			seen.pools += len(s.pools)
			seen.mappings += len(s.mappings)
			seen.contexts += len(s.contexts) - 1
			seen.tokens += len(s.boot.exports.tokens)
			seen.samples += len(s.samples)
			seen.unfreed += int(s.unfreed.allocations)
			seen.withContext += int(s.withContext.allocations)
			if s.boot.boots[s.boot.bootID] != s.boot {
				seen.detached++
			}
			for _, g := range s.mappings {
				if g.memory != 0 && fold.slab.at(g.memory).refs == 0 {
					seen.keptByMapping++
				}
			}
			for _, i := range (&coder{Tracker: fold}).multicasts(s) {
				if fold.slab.at(i).kind == multicast {
					seen.multicasts++
				}
			}
		}
	}
	for _, n := range []int{
		seen.holders, seen.pools, seen.mappings, seen.contexts, seen.multicasts, seen.tokens, seen.samples,
		seen.detached,
		seen.unfreed, seen.withContext, seen.keptByMapping,
	} {
		if n == 0 {
			t.Fatalf("got %+v", seen)
		}
	}
}

// Forget removes what belongs to the host and nothing else. Memory that the host's processes counted as other
// becomes unfreed.
func TestForgetRemovesOnlyTheHost(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]consumertest.Step{"traffic": consumertest.Traffic(t, 5, 200),
		"crowd": consumertest.Crowd(t)} {
		t.Run(name, func(t *testing.T) {
			fold := shortKeep()
			consumertest.Take(t, fold, steps...)
			before := consumertest.Sections(t, fold)
			gone := before[1]
			fold.Forget(gone.Cluster, gone.Host)
			after := consumertest.Sections(t, fold)
			for i, s := range after[1:] {
				if len(after) != len(before)-1 || s.Host != before[i+2].Host || !bytes.Equal(s.Data, before[i+2].Data) {
					t.Errorf("section %d of %d, of host %s, changed", i, len(after), s.Host)
				}
			}
			balanced(t, fold)
			restored := consumertest.Restore(t, shortKeep(), after)
			if got, want := view(t, restored), view(t, fold); got != want {
				t.Errorf("restored, it shows\n%s\nwant\n%s", got, want)
			}
			if id := (snapshot.HostID{Cluster: gone.Cluster, Host: gone.Host}); len(fold.table.Of(id)) > 0 ||
				strings.Contains(string(consumertest.Page(t, fold)), `hostname="`+gone.Host+`"`) && name == "crowd" {
				t.Errorf("host %s is still there", gone.Host)
			}
			consumertest.Take(t, fold, steps...) // the forgotten host returns as a new one
			for _, s := range after[1:] {
				fold.Forget(s.Cluster, s.Host)
			}
			fold.Forget(gone.Cluster, gone.Host)
			if len(fold.hosts)+len(fold.pids)+len(fold.table.All())+fold.slabLive()+len(
				fold.workloads.index)+len(fold.scrape().totals) > 0 {
				t.Errorf("all hosts are forgotten, but %d hosts, %d PIDs, %d processes, %d allocations and %d "+
					"workloads are left",
					len(fold.hosts), len(fold.pids), len(fold.table.All()), fold.slabLive(), len(fold.workloads.index))
			}
			balanced(t, fold)
		})
	}
}
