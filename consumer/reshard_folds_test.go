package consumer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/consumertest"
	launchfold "github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// folds are those that have shards, and what each shows of its hosts.
var folds = []struct {
	fresh func() Stateful
	show  func(fold Stateful, row func(cluster, host string, what any))
}{
	{func() Stateful { return leak.New(leak.Config{}) }, func(fold Stateful, row func(cluster, host string, what any)) {
		for _, p := range fold.(*leak.Tracker).Report().Processes {
			row(p.ID.Cluster, p.ID.Host, p)
		}
	}},
	{func() Stateful { return launchfold.New(launchfold.Config{}) },
		func(fold Stateful, row func(cluster, host string, what any)) {
			for _, p := range fold.(*launchfold.Histogram).Report() {
				row(p.ID.Cluster, p.ID.Host, p)
			}
		}},
	{func() Stateful { return bandwidth.New(bandwidth.Config{}) },
		func(fold Stateful, row func(cluster, host string, what any)) {
			for _, p := range fold.(*bandwidth.Meter).Report() {
				row(p.ID.Cluster, p.ID.Host, p)
			}
		}},
	{func() Stateful { return anomaly.New(anomaly.Config{}) },
		func(fold Stateful, row func(cluster, host string, what any)) {
			for _, a := range fold.(*anomaly.Detector).Alerts() {
				row(a.Cluster, a.Host, a)
			}
		}},
}

// TestReshardedFoldsShowTheSame: hosts of two shards are spread over three and then merged into one. Each fold
// shows the same of every host as a fold of one shard does from the beginning, except for counters without a host.
func TestReshardedFoldsShowTheSame(t *testing.T) {
	t.Parallel()
	js := connectReady(t) // of one shard
	f := newFleet(t, 2)
	messages := consumertest.Traffic(t, 11, 300)
	truths, whole := make([]Stateful, len(folds)), make([]*Reader, len(folds))
	for i, fold := range folds {
		truths[i] = fold.fresh()
		whole[i], _ = start(t, js, truths[i], ReaderOptions{})
	}
	for phase, shards := range []int{2, 3, 1} {
		if phase > 0 {
			f.topo = reshard(t, f.admin, shards)
		}
		n := len(messages) / (3 - phase)
		for _, m := range messages[:n] {
			publishStep(t, js, schema.Topology{Shards: 1}, m)
			publishStep(t, f.admin, f.topo, m)
		}
		messages = messages[n:]
		for i, fold := range folds {
			sharded := f.instance("a", fold.fresh)
			owned := sharded.folded(t, f)
			wait(t, whole[i], info(t, js, schema.StreamName(0)).State.LastSeq)
			got, want := map[hostID][]string{}, rowsOf(t, truths[i], fold.show)
			with := 0
			for _, shard := range owned {
				rows := rowsOf(t, shard.Fold, fold.show)
				maps.Copy(got, rows)
				with += min(len(rows), 1)
			}
			if name := truths[i].Name(); !maps.EqualFunc(got, want, slices.Equal) || with < min(shards, 2) {
				t.Errorf("%s: %d of %d shards show\n%q\nwant\n%q", name, with, shards, got, want)
			}
			if shards == 1 {
				lines := hostLines(t, truths[i].(prometheus.Collector))
				eventually(t, truths[i].Name()+" has the same page",
					func() bool { return slices.Equal(hostLines(t, sharded), lines) })
			}
			sharded.stop()
		}
	}
}

// publishStep publishes the message of a step, in the shard of its host.
func publishStep(t *testing.T, js jetstream.JetStream, topology schema.Topology, step consumertest.Step) {
	if step.Lost > 0 {
		return // the numbers of batches say so
	}
	b := consumertest.Decode(t, step.Message)
	if _, err := js.Publish(t.Context(), schema.Subject(topology.Shard(b.Cluster, b.Host), b.Cluster, b.Host, b.Kind),
		step.Message); err != nil {
		t.Fatal(err)
	}
}

// folded returns the shards of the newest generation once an instance owns all of them and has folded all that is in
// them. It lists them once: on a loaded machine the lease of a shard may expire a moment later.
func (i *instance) folded(t *testing.T, f *fleet) (owned []Shard) {
	t.Helper()
	last := map[int]uint64{}
	for _, number := range f.topo.Numbers() {
		last[number] = info(t, f.admin, schema.StreamName(number)).State.LastSeq
	}
	eventually(t, "the new shards are owned and folded", func() bool {
		owned = slices.DeleteFunc(i.Shards(), func(s Shard) bool { // closed ones may be finished beside them
			return !f.topo.Has(s.Number) || s.Reader.Applied() < last[s.Number]
		})
		return len(owned) == len(last)
	})
	return owned
}

// rowsOf returns the reports of a fold, by host.
func rowsOf(t *testing.T, fold Stateful,
	show func(Stateful, func(cluster, host string, what any))) map[hostID][]string {
	rows := map[hostID][]string{}
	show(fold, func(cluster, host string, what any) {
		text, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		id := hostID{Cluster: cluster, Host: host}
		rows[id] = append(rows[id], string(text))
	})
	return rows
}

// hostLines are the lines of a scrape that name a host.
func hostLines(t *testing.T, c prometheus.Collector) (lines []string) {
	for line := range strings.Lines(string(consumertest.Page(t, c))) {
		if strings.Contains(line, "hostname=") && !strings.Contains(line, `hostname=""`) &&
			!strings.HasPrefix(line, "gputap_consumer_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestForgottenHostIsNotShown: it is in no metric, report or state, and nothing else changes.
func TestForgottenHostIsNotShown(t *testing.T) {
	t.Parallel()
	for _, f := range folds {
		fold := f.fresh()
		t.Run(fold.Name(), func(t *testing.T) {
			for _, m := range consumertest.Traffic(t, 11, 300) {
				if m.Lost == 0 {
					if err := fold.Apply(consumertest.Decode(t, m.Message)); err != nil {
						t.Fatal(err)
					}
				}
			}
			before, page := rowsOf(t, fold, f.show), hostLines(t, fold.(prometheus.Collector))
			gone := slices.MinFunc(slices.Collect(maps.Keys(before)), hostID.Compare)
			fold.(forgetful).Forget(gone.Cluster, gone.Host)
			delete(before, gone)
			ofGone := fmt.Sprintf("hostname=%q", gone.Host)
			left := slices.DeleteFunc(slices.Clone(page),
				func(line string) bool { return strings.Contains(line, ofGone) })
			if len(left) == len(page) || len(left) == 0 {
				t.Fatalf("of %d lines %d name another host than %v", len(page), len(left), gone)
			}
			for _, one := range []Stateful{fold, again(t, fold, f.fresh())} {
				if got := rowsOf(t, one, f.show); !maps.EqualFunc(got, before, slices.Equal) {
					t.Errorf("it shows\n%q\nwant\n%q", got, before)
				}
				if got := hostLines(t, one.(prometheus.Collector)); !slices.Equal(got, left) {
					t.Errorf("page:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(left, "\n"))
				}
			}
		})
	}
}

// again is a fold with the state of another.
func again(t *testing.T, of, to Stateful) Stateful {
	if err := of.Snapshot(to.Restore); err != nil {
		t.Fatal(err)
	}
	return to
}
