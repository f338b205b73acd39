package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/cmd/internal/redact"
	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

var discard = slog.New(slog.DiscardHandler)

// liveRun is a bus on which folds run while a simulated fleet publishes.
type liveRun struct {
	t      *testing.T
	nc     *nats.Conn
	js     jetstream.JetStream
	shards int
	sets   []*fold.Set
	ctx    context.Context
}

// startLive starts the folds of gputap run on each shard of an embedded server.
func startLive(t *testing.T, shards int) *liveRun {
	t.Helper()
	s, err := embedded.StartTemporary(t.TempDir(), config.Embedded{}, discard)
	check(t, err)
	t.Cleanup(s.Stop)
	nc, js, err := s.Connect("test")
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		nc.Close()
	})
	check(t, bus.EnsureStreams(ctx, js, bus.StreamOptions{Shards: shards}))
	l := &liveRun{t: t, nc: nc, js: js, shards: shards, ctx: ctx}
	for shard := range shards {
		set := &fold.Set{Shard: shard}
		for _, f := range append(l.folds(), coverage.New()) {
			r := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, js, f, discard)
			set.Add(f, r)
			running.Go(func() { _ = r.Run(ctx) })
		}
		l.sets = append(l.sets, set)
	}
	return l
}

// folds are those that a replay with the same options makes, but for the summaries of ranks, which are published.
func (l *liveRun) folds() []fold.Fold {
	quiet := func(string) func(alert.Alert) { return nil }
	list := create(&LocalOptions{Leak: leakOfRun(), Anomaly: config.DefaultAnomaly()}, quiet)
	for i, f := range list {
		if f.Name() == fold.Anomaly.Name() {
			list[i] = fold.AnomaliesIn(l.ctx, config.DefaultAnomaly(), l.js, nil, discard)
		}
	}
	return list
}

// leakOfRun judges windows as gputap-leak does.
func leakOfRun() config.Leak {
	c := config.DefaultRunCommand().Leak
	c.Window = time.Minute
	return c
}

// simulate publishes two minutes of a fleet with a job.
func (l *liveRun) simulate(o simulate.Options) {
	l.t.Helper()
	o.Conns, o.Cluster, o.Rate, o.Duration = []*nats.Conn{l.nc}, "sim", 2000, 2*time.Minute
	o.Start, o.Seed, o.BatchAge, o.Drain, o.Log = time.Now().Add(-o.Duration), 7, time.Second, time.Minute, discard
	s, err := simulate.New(o)
	check(l.t, err)
	check(l.t, s.Run(l.t.Context()))
	if stats := s.Stats(); stats.UnackedBatches > 0 {
		l.t.Fatalf("%d batches are not acked", stats.UnackedBatches)
	}
}

// settle returns when every fold has read everything, what folds published included.
func (l *liveRun) settle() {
	l.t.Helper()
	for again := true; again; {
		again = false
		for _, set := range l.sets {
			before := l.last(set.Shard)
			for _, r := range set.Readers {
				check(l.t, r.WaitFor(l.t.Context(), before))
			}
		}
		for _, set := range l.sets {
			for _, r := range set.Readers {
				folded, err := r.Folded(l.t.Context(), r.Applied())
				check(l.t, err)
				again = again || !folded
			}
		}
	}
}

func (l *liveRun) last(shard int) uint64 {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), schema.StreamName(shard))
	check(l.t, err)
	return s.CachedInfo().State.LastSeq
}

// storedAt returns when NATS stored a message.
func (l *liveRun) storedAt(shard int, sequence uint64) time.Time {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), schema.StreamName(shard))
	check(l.t, err)
	m, err := s.GetMsg(l.t.Context(), sequence)
	check(l.t, err)
	return m.Time
}

// record records all stored messages since a time.
func (l *liveRun) record(since time.Time) (path string) {
	l.t.Helper()
	path = filepath.Join(l.t.TempDir(), "run.gtr")
	r := record.New(record.Options{JetStream: l.js, Path: path, Since: since, Until: time.Now(), Log: discard})
	check(l.t, r.Run(l.t.Context()))
	return path
}

// replayed replays a recording into folds.
func replayed(t *testing.T, path string, pace Pace, s recording.Selection) *Local {
	t.Helper()
	f, err := Open(path, s, discard)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	o := LocalOptions{Pace: pace, Leak: leakOfRun(), Anomaly: config.DefaultAnomaly()}
	l, err := NewLocal(t.Context(), f, o, discard)
	check(t, err)
	t.Cleanup(l.Close)
	check(t, l.Run(t.Context()))
	return l
}

// sections returns the state of a fold, by host.
func sections(t *testing.T, f consumer.Stateful) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	check(t, f.Snapshot(func(s consumer.Section) error {
		key := fmt.Sprintf("%d %s/%s", len(all), s.Cluster, s.Host)
		all[key] = bytes.Clone(s.Data)
		return nil
	}))
	return all
}

// expectEqual compares the states of two folds.
func expectEqual(t *testing.T, what string, live, replayed consumer.Stateful) {
	t.Helper()
	want, got := sections(t, live), sections(t, replayed)
	if len(want) != len(got) {
		t.Errorf("%s: %d sections, want %d", what, len(got), len(want))
	}
	for key, data := range want {
		if !bytes.Equal(data, got[key]) {
			t.Errorf("%s: section %s has %d bytes and another content; live, it has %d bytes", what, key, len(got[key]),
				len(data))
		}
	}
}

// TestReplayedStatesEqualLive compares every fold of every shard with the one that ran while the fleet published: the
// state of the fold, and that of its reader.
func TestReplayedStatesEqualLive(t *testing.T) {
	t.Parallel()
	live := startLive(t, 3)
	live.simulate(simulate.Options{Hosts: 10, Jobs: 1, LeakRank: 16 << 20, SlowRank: 0.5, Lose: 0.01})
	live.settle()
	path := live.record(time.Unix(1, 0))
	for _, pace := range []Pace{{}, {Speed: 1e6}} {
		r := replayed(t, path, pace, recording.Selection{})
		names := []string{}
		for shard, set := range live.sets {
			for i, f := range set.Folds {
				what := fmt.Sprintf("speed %g, %s of shard %d", pace.Speed, f.Name(), shard)
				expectEqual(t, what, f, r.folds.sets[shard].Folds[i])
				want, err := set.Readers[i].State(f)
				check(t, err)
				got, err := r.folds.sets[shard].Readers[i].State(r.folds.sets[shard].Folds[i])
				check(t, err)
				if !bytes.Equal(want, got) {
					t.Errorf("%s: the state of the reader differs", what)
				}
				names = append(names, f.Name())
			}
		}
		slices.Sort(names)
		if names = slices.Compact(names); len(names) != 5 {
			t.Errorf("only %v were compared", names)
		}
		if s := r.Snapshot(); len(s.Alerts) == 0 || len(s.Processes) == 0 {
			t.Errorf("the report has %d alerts and %d processes", len(s.Alerts), len(s.Processes))
		}
	}
}

// TestReplayFromTheMiddle compares the tracker, whose state at the beginning is recorded.
func TestReplayFromTheMiddle(t *testing.T) {
	t.Parallel()
	live := startLive(t, 1)
	live.simulate(simulate.Options{Hosts: 3})
	live.settle()
	r := replayed(t, live.record(live.storedAt(0, live.last(0)/2)), Pace{}, recording.Selection{})
	memory := func(s *fold.Set) *fold.Memory {
		i := slices.IndexFunc(s.Folds, func(f fold.Fold) bool { return f.Name() == fold.Leak.Name() })
		return s.Folds[i].(*fold.Memory)
	}
	expectEqual(t, "leak", memory(live.sets[0]).Tracker, memory(r.folds.sets[0]).Tracker)
	if lost := r.Lost(); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	if n := r.Stats().Messages; n == 0 || n > live.last(0)*2/3 {
		t.Errorf("%d of %d messages were replayed", n, live.last(0))
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplayOfJob replays the hosts on which a job runs, with all their messages: nothing is missing between them.
func TestReplayOfJob(t *testing.T) {
	t.Parallel()
	live := startLive(t, 2)
	live.simulate(simulate.Options{Hosts: 12, Jobs: 1}) // a job of 8 ranks on the first 8 hosts
	live.settle()
	all := replayed(t, live.record(time.Unix(1, 0)), Pace{}, recording.Selection{}).Snapshot()
	job := ""
	for _, p := range all.Processes {
		job = max(job, p.Job)
	}
	for _, since := range []time.Time{time.Unix(1, 0), live.storedAt(0, live.last(0)/2)} {
		path := live.record(since)
		r := replayed(t, path, Pace{}, recording.Selection{Job: job})
		s := r.Snapshot()
		if len(s.Hosts) != 8 || len(r.Lost()) > 0 || job == "" {
			t.Errorf("%d hosts of job %q, lost %v", len(s.Hosts), job, r.Lost())
		}
		for _, p := range s.Processes {
			if p.Host > "sim-0007" {
				t.Errorf("a process of host %s", p.Host)
			}
		}
		if none := replayed(t, path, Pace{}, recording.Selection{Job: "none"}); none.Stats().Messages > 0 {
			t.Errorf("%d messages of no job", none.Stats().Messages)
		}
	}
}

// TestRedactedReplay redacts a recording, and a bus while it is recorded: the folds report the same numbers.
func TestRedactedReplay(t *testing.T) {
	t.Parallel()
	live := startLive(t, 2)
	live.simulate(simulate.Options{Hosts: 10, Jobs: 1, LeakRank: 16 << 20, SlowRank: 0.5})
	live.settle()
	original := live.record(live.storedAt(0, live.last(0)/2))
	dir := t.TempDir()
	copied, recorded := filepath.Join(dir, "copied.gtr"), filepath.Join(dir, "recorded.gtr")
	file, err := os.Create(copied)
	check(t, err)
	_, err = redact.File(t.Context(), original, file, discard)
	check(t, errors.Join(err, file.Close()))
	o := record.Options{JetStream: live.js, Path: recorded, Since: live.storedAt(0, live.last(0)/2), Until: time.Now(),
		Redact: true, Log: discard}
	check(t, record.New(o).Run(t.Context()))
	if err := record.New(o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "pseudonyms") {
		t.Errorf("a redacted recording is continued: %v", err)
	}
	want := numbers(t, replayed(t, original, Pace{}, recording.Selection{}))
	for _, path := range []string{copied, recorded} {
		data, err := os.ReadFile(path)
		check(t, err)
		if bytes.Contains(data, []byte("sim-0")) {
			t.Errorf("%s: a host's name is left", path)
		}
		if got := numbers(t, replayed(t, path, Pace{}, recording.Selection{})); got != want {
			t.Errorf("%s: the report is\n%s\nwant\n%s", path, got, want)
		}
	}
}

// numbers returns a report without names.
func numbers(t *testing.T, l *Local) string {
	t.Helper()
	s := l.Snapshot()
	var lines []string
	for _, p := range s.Processes {
		for _, name := range []*string{&p.Cluster, &p.Host, &p.Job, &p.User, &p.Exe, &p.Cgroup, &p.Unit, &p.Pod,
			&p.Container} {
			*name = ""
		}
		line, err := json.Marshal(p)
		check(t, err)
		lines = append(lines, string(line))
	}
	for _, a := range s.Alerts {
		lines = append(lines, fmt.Sprint(a.Rule, a.Severity, a.State, a.PID, a.Bytes, a.Value, a.Time))
	}
	for _, h := range s.Hosts {
		line, err := json.Marshal([]any{h.Lost, h.LateProcesses, h.GPUs, h.LastEvent})
		check(t, err)
		lines = append(lines, string(line))
	}
	if len(s.Alerts) == 0 || len(s.Hosts) != 10 {
		t.Errorf("%d alerts, %d hosts", len(s.Alerts), len(s.Hosts))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
