package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// check compares the stored batches with the log: every batch that was not withheld, in order. Duplicates count once.
func check(t testing.TB, log []Entry, all []stored) {
	t.Helper()
	type source struct {
		host string
		kind schema.Kind
	}
	want := map[source][][]byte{}
	decoder, last := schema.NewDecoder(), map[string]uint64{}
	var b schema.Batch
	for _, e := range log {
		if err := decoder.Decode(e.Data, &b); err != nil {
			t.Fatal(err)
		}
		if !e.Withheld {
			id := source{b.Host, b.Kind}
			want[id] = append(want[id], e.Data)
		}
	}
	for _, m := range all {
		if err := decoder.Decode(m.data, &b); err != nil {
			t.Fatal(err)
		}
		run := fmt.Sprint(b.Host, b.BootID, b.Run, b.Kind)
		if b.Seq <= last[run] {
			continue
		}
		last[run] = b.Seq
		id := source{b.Host, b.Kind}
		if len(want[id]) == 0 || !bytes.Equal(want[id][0], m.data) {
			t.Fatalf("%s seq %d of %s is not the next of the log", b.Kind, b.Seq, b.Host)
		}
		want[id] = want[id][1:]
	}
	for id, left := range want {
		if len(left) > 0 {
			t.Errorf("%d %s batches of %s are not stored", len(left), id.kind, id.host)
		}
	}
}

// seqs checks that seq counts from 1 in each run and kind, and returns the sums of a log.
func seqs(t *testing.T, log []Entry) (batches, events, withheld, runs int) {
	t.Helper()
	decoder, last := schema.NewDecoder(), map[string]uint64{}
	lost, lostOf := map[string]uint64{}, map[string]uint64{}
	var b schema.Batch
	for _, e := range log {
		if err := decoder.Decode(e.Data, &b); err != nil {
			t.Fatal(err)
		}
		run := fmt.Sprint(b.Host, b.BootID, b.Run)
		if lostOf[run] != b.TotalLost() || b.Lost[schema.LossSpool] != b.TotalLost() {
			t.Fatalf("%s tells %v lost, want %d", run, b.Lost, lostOf[run])
		}
		if e.Withheld {
			lostOf[run] += uint64(b.Events)
			withheld += b.Events
		}
		lost[run]++
		id := run + b.Kind.String()
		if b.Seq != last[id]+1 {
			t.Fatalf("%s: seq %d after %d", id, b.Seq, last[id])
		}
		last[id] = b.Seq
		batches++
		events += b.Events
	}
	return batches, events, withheld, len(lost)
}

// folded has two folds of the same batches.
type folded struct {
	leak   *leak.Tracker
	launch *launch.Histogram
	last   map[string]uint64
}

func newFolded() *folded {
	return &folded{leak: leak.New(leak.Config{}), launch: launch.New(launch.Config{}), last: map[string]uint64{}}
}

// apply drops duplicates and reports missing batches, as package consumer does, before it folds.
func (f *folded) apply(t testing.TB, b *schema.Batch) {
	t.Helper()
	id := fmt.Sprint(b.Cluster, b.Host, b.BootID, b.Run, b.Kind)
	last := f.last[id]
	if b.Seq <= last {
		return
	}
	f.last[id] = b.Seq
	var err error
	switch b.Kind {
	case schema.KindMemory:
		f.leak.Lost(b.Cluster, b.Host, b.BootID, b.Seq-last-1)
		err = f.leak.Apply(b)
	case schema.KindHost:
		err = f.leak.Apply(b)
	case schema.KindLaunch:
		err = f.launch.Apply(b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f *folded) text(t testing.TB) string {
	t.Helper()
	l, h := f.leak.Report(), f.launch.Report()
	byID := func(a, b schema.ProcessID) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
	}
	slices.SortFunc(l.Processes, func(a, b leak.Process) int { return byID(a.ID, b.ID) })
	slices.SortFunc(h, func(a, b launch.Process) int { return byID(a.ID, b.ID) })
	text, err := json.MarshalIndent([]any{l, h}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestStreamsEqualTheLog uses four shards and two connections, with and without loss and restarts. The folds of the
// streams and of the log are equal.
func TestStreamsEqualTheLog(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		lose    float64
		restart bool
		runs    int
	}{{"all", 0, false, 6}, {"loss", 0.1, false, 6}, {"restarts", 0.1, true, 18}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBus(t, 4)
			js := b.js()
			topology := `{"generation":1,"first":0,"shards":4}`
			b.setTopology(js, topology)
			o := small(t, b)
			o.Lose, o.Restart = tt.lose, tt.restart
			s, wait := start(t, o)
			wait()
			log := logged(t, o.LogPath)
			batches, events, withheld, runs := seqs(t, log)
			got := s.Stats()
			if got.Batches != uint64(batches) || got.Events != uint64(events) ||
				got.WithheldEvents != uint64(withheld) ||
				got.AckedEvents != uint64(events-withheld) || got.UnackedBatches != 0 || !got.KeptUp {
				t.Errorf("%+v, of %d batches with %d events, %d withheld", got, batches, events, withheld)
			}
			if events < 300_000 || (withheld > 0) != (tt.lose > 0) || runs != tt.runs {
				t.Errorf("%d events, %d withheld, %d runs", events, withheld, runs)
			}
			compareFolds(t, b, log)
		})
	}
}

func compareFolds(t *testing.T, b *bus, log []Entry) {
	t.Helper()
	decoder := schema.NewDecoder()
	var batch schema.Batch
	want, got := newFolded(), newFolded()
	for _, e := range log {
		if e.Withheld {
			continue
		}
		if err := decoder.Decode(e.Data, &batch); err != nil {
			t.Fatal(err)
		}
		want.apply(t, &batch)
	}
	js, used := b.js(), 0
	var all []stored
	for shard := range 4 {
		part := b.stored(js, shard)
		if len(part) > 0 {
			used++
		}
		all = append(all, part...)
		for _, m := range part {
			if err := decoder.Decode(m.data, &batch); err != nil {
				t.Fatal(err)
			}
			if subject := schema.Subject(shard, batch.Cluster, batch.Host, batch.Kind); subject != m.subject {
				t.Fatalf("%s on %s, want %s", batch.Host, m.subject, subject)
			}
			got.apply(t, &batch)
		}
	}
	check(t, log, all)
	if used < 2 {
		t.Errorf("%d shards hold all hosts", used)
	}
	if want, got := want.text(t), got.text(t); want != got || len(want) < 10_000 {
		t.Errorf("the stream folds into %d bytes, the log into %d other ones", len(got), len(want))
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	t.Parallel()
	b := newBus(t, 1)
	good := small(t, b)
	for name, spoil := range map[string]func(*Options){
		"hosts":      func(o *Options) { o.Hosts = maxHosts + 1 },
		"rate":       func(o *Options) { o.Rate = 1e13 },
		"slow":       func(o *Options) { o.Rate = 1e-6 },
		"profile":    func(o *Options) { o.Profile = "simulate_test.go" },
		"no profile": func(o *Options) { o.Profile = "absent" },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	few := good
	few.Hosts, few.Jobs = 2, 1
	const want = "1 job has 8 ranks: use at least as many hosts"
	if _, err := New(few); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}
