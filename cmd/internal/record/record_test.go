package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

var longAgo = time.Unix(1, 0)

func TestRecordsEverything(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 3)
	f.publish(200)
	o := f.options(tempPath(t))
	o.Since = longAgo
	s := f.recordAll(o)
	got := readFile(t, o.Path)
	expect(t, got.messages, f.messages(func(int, *published) bool { return true }))
	expectLive(t, "at the beginning", got.live, f.live(0))
	expectLive(t, "at the end", got.end, f.live(200))
	info, err := os.Stat(o.Path)
	check(t, err)
	if s.Messages != 200 || s.Bytes != info.Size() || s.Removed != 0 || s.Shards != 3 || s.Incomplete != 0 || s.Lost() != nil {
		t.Errorf("%+v, and the file has %d bytes", s, info.Size())
	}
}

// TestFollowsAndDrains publishes while the recorder runs. Its end comes behind what is stored when ctx ends.
func TestFollowsAndDrains(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.publish(50)
	o := f.options(tempPath(t))
	r := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-r.Ready()
	f.publish(100)
	cancel()
	check(t, <-ended)
	got := readFile(t, o.Path)
	expect(t, got.messages, f.messages(func(i int, _ *published) bool { return i >= 50 }))
	expectLive(t, "at the beginning", got.live, f.live(50))
	expectLive(t, "at the end", got.end, f.live(150))
	if slices.Contains(got.evidence, "gap") || slices.Contains(got.evidence, "late") {
		t.Errorf("evidence %v", got.evidence)
	}
}

// TestSelection records a part of what is stored.
func TestSelection(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 3)
	f.publish(150)
	from, to := f.published[50].Stored, f.published[100].Stored
	token := func(m *published, i int) string { return strings.Split(m.Subject, ".")[i] }
	tests := []struct {
		name         string
		selection    recording.Selection
		since, until time.Time
		want         func(i int, m *published) bool
	}{
		{"times", recording.Selection{}, from, to, func(_ int, m *published) bool {
			return !m.Stored.Before(from) && m.Stored.Before(to)
		}},
		{"a host", recording.Selection{Host: "gpu-2"}, longAgo, time.Time{}, func(_ int, m *published) bool {
			return m.host == "gpu-2"
		}},
		{"a host and a kind", recording.Selection{Cluster: clusterName, Host: "gpu-2", Kinds: []schema.Kind{schema.KindHost}},
			from, time.Time{}, func(_ int, m *published) bool {
				return m.host == "gpu-2" && token(m, 6) == "host" && !m.Stored.Before(from)
			}},
		{"two kinds", recording.Selection{Kinds: []schema.Kind{schema.KindHost, schema.KindCopy}}, longAgo, to,
			func(_ int, m *published) bool { return token(m, 6) == "host" && m.Stored.Before(to) }},
		{"another cluster", recording.Selection{Cluster: "other"}, longAgo, time.Time{},
			func(int, *published) bool { return false }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := f.options(tempPath(t))
			o.Selection, o.Since, o.Until = tt.selection, tt.since, tt.until
			if tt.until.IsZero() {
				f.recordAll(o)
			} else {
				check(t, New(o).Run(t.Context()))
			}
			got := readFile(t, o.Path)
			expect(t, got.messages, f.messages(tt.want))
			live := map[string]int64{}
			for i := range f.published {
				p := &f.published[i]
				if p.Stored.Before(tt.since) && tt.selection.HasHost(clusterName, p.host) &&
					(len(tt.selection.Kinds) == 0 || slices.Contains(tt.selection.Kinds, schema.KindMemory)) {
					live[p.host] += p.delta
				}
			}
			for host, n := range live {
				if n == 0 {
					delete(live, host)
				}
			}
			expectLive(t, "at the beginning", got.live, live)
		})
	}
}

// TestUntilLater ends at a time that comes while the recorder runs.
func TestUntilLater(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	o := f.options(tempPath(t))
	o.Until = time.Now().Add(300 * time.Millisecond)
	r := New(o)
	ended := make(chan error)
	go func() { ended <- r.Run(t.Context()) }()
	<-r.Ready()
	for len(f.published) == 0 || f.published[len(f.published)-1].Stored.Before(o.Until) {
		f.publish(1)
	}
	check(t, <-ended)
	expect(t, readFile(t, o.Path).messages, f.messages(func(_ int, m *published) bool { return m.Stored.Before(o.Until) }))
}

// TestStateFromCheckpoint begins behind a checkpoint of leak. Then it removes from the stream what the checkpoint
// covers: the state is complete only with the checkpoint.
func TestStateFromCheckpoint(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.publish(100)
	f.foldAll()
	checkpointed := f.last()
	f.publish(60)
	for _, shard := range f.topology.Numbers() {
		stream, err := f.js.Stream(t.Context(), schema.StreamName(shard))
		check(t, err)
		check(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(checkpointed[shard]+1)))
	}
	o := f.options(tempPath(t))
	s := f.recordAll(o)
	got := readFile(t, o.Path)
	expectLive(t, "behind the checkpoint", got.live, f.live(160))
	if s.Incomplete != 0 || slices.Contains(got.evidence, "gap") {
		t.Errorf("%+v, evidence %v", s, got.evidence)
	}
	o = f.options(tempPath(t))
	o.Selection.Host = "gpu-1"
	f.recordAll(o)
	one := map[string]int64{"gpu-1": f.live(160)["gpu-1"]}
	expectLive(t, "of one host", readFile(t, o.Path).live, one)

	// The oldest message is behind all checkpoints of an earlier moment: without a checkpoint the state is partial.
	states, err := f.js.Stream(t.Context(), schema.StateStream)
	check(t, err)
	check(t, states.Purge(t.Context()))
	o = f.options(tempPath(t))
	s = f.recordAll(o)
	got = readFile(t, o.Path)
	want := map[string]int64{}
	for _, p := range f.published[100:] {
		want[p.host] += p.delta
	}
	expectLive(t, "without a checkpoint", got.live, want)
	if s.Incomplete != 2 {
		t.Errorf("%d shards have partial state, want 2", s.Incomplete)
	}
	for _, stream := range got.streams {
		first := slices.IndexFunc(f.published, func(p published) bool {
			return p.Shard == stream.Shard && p.Sequence == checkpointed[p.Shard]+1
		})
		if stream.State != recording.KnowledgePartial || !stream.Since.Equal(f.published[first].Stored) {
			t.Errorf("shard %d: state %s since %s", stream.Shard, stream.State, stream.Since)
		}
	}
}

// TestCheckpointBeyondTheBeginning rebuilds the state from the stream.
func TestCheckpointBeyondTheBeginning(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.publish(100)
	f.foldAll()
	o := f.options(tempPath(t))
	o.Since = f.published[40].Stored
	f.recordAll(o)
	got := readFile(t, o.Path)
	expectLive(t, "at the beginning", got.live, f.live(40))
	expectLive(t, "at the end", got.end, f.live(100))
}

// foldAll runs the fold leak until it has saved checkpoints of all messages.
func (f *fleet) foldAll() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	c := consumer.New(consumer.Options{Settle: time.Millisecond, Retry: 10 * time.Millisecond}, f.js,
		func() consumer.Stateful { return newLeak() }, f.options("").Log)
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	want := f.live(len(f.published))
	bustest.Eventually(f.t, "leak has folded everything", func() bool {
		live := int64(0)
		c.Each(func(_ int, fold consumer.Stateful) {
			live += int64(fold.(*leak.Tracker).Report().Totals.LiveBytes)
		})
		return live == sum(want)
	})
	cancel()
	check(f.t, <-ended)
}

func sum(live map[string]int64) (n int64) {
	for _, bytes := range live {
		n += bytes
	}
	return n
}

// last returns the last published sequence of each shard.
func (f *fleet) last() map[int]uint64 {
	last := map[int]uint64{}
	for _, p := range f.published {
		last[p.Shard] = p.Sequence
	}
	return last
}

// TestRotation decodes each file of a rotated recording alone, across a restart of the recorder.
func TestRotation(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.publish(300)
	o := f.options(tempPath(t))
	o.Since, o.MaxFileBytes = longAgo, 1<<10
	split := f.published[150].Stored
	first := o
	first.Until = split
	check(t, New(first).Run(t.Context()))
	f.recordAll(o)
	last, err := lastNumber(o.Path)
	check(t, err)
	if last < 2 {
		t.Fatalf("%d files", last)
	}
	var all []recording.Message
	for n := 1; n <= last; n++ {
		got := readFile(t, numbered(o.Path, n))
		live := map[string]int64{}
		for _, s := range got.streams {
			for i := range f.published {
				if p := &f.published[i]; p.Shard == s.Shard && p.Sequence <= s.After {
					live[p.host] += p.delta
				}
			}
		}
		for host, n := range live {
			if n == 0 {
				delete(live, host)
			}
		}
		expectLive(t, fmt.Sprint("beginning of file ", n), got.live, live)
		if slices.Contains(got.evidence, "gap") {
			t.Errorf("file %d: evidence %v", n, got.evidence)
		}
		all = append(all, got.messages...)
	}
	expect(t, all, f.messages(func(int, *published) bool { return true }))
}

// TestRotationContinuesTheFileBefore begins a file and is killed before its beginning is whole.
func TestRotationContinuesTheFileBefore(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	f.publish(20)
	o := f.options(tempPath(t))
	o.Since, o.MaxFileBytes = longAgo, 1<<30
	f.recordAll(o)
	w, _, err := recording.Append(numbered(o.Path, 2))
	check(t, err)
	check(t, w.AddSection(recording.Section{Fold: "leak"}))
	check(t, w.Close())
	f.publish(20)
	f.recordAll(o)
	expect(t, readFile(t, numbered(o.Path, 1)).messages, f.messages(func(int, *published) bool { return true }))
	if last, err := lastNumber(o.Path); err != nil || last != 1 {
		t.Errorf("the last file is %d, %v", last, err)
	}
}

func TestContinues(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.publish(30)
	o := f.options(tempPath(t))
	f.recordAll(o) // nothing is new
	f.publish(30)
	if s := f.recordAll(o); s.Messages != 30 || !s.Continued {
		t.Errorf("%+v", s)
	}
	f.shard(5) // another generation: its shards are added
	f.publish(60)
	f.recordAll(o)
	got := readFile(t, o.Path)
	expect(t, got.messages, f.messages(func(i int, _ *published) bool { return i >= 30 }))
	expectLive(t, "at the beginning", got.live, f.live(30))
	if len(got.streams) != 7 {
		t.Errorf("%d streams, want 7", len(got.streams))
	}
}

// TestShardsAreAdded changes the number of shards while the recorder runs.
func TestShardsAreAdded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	o := f.options(tempPath(t))
	r := New(o)
	r.topologyTime = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-r.Ready()
	f.publish(30)
	f.shard(4)
	f.publish(50)
	bustest.Eventually(t, "the shards are recorded", func() bool { return r.Stats().Messages == 80 })
	cancel()
	check(t, <-ended)
	expect(t, readFile(t, o.Path).messages, f.messages(func(int, *published) bool { return true }))
}

// TestRefusesAnotherBus continues recordings that belong to something else.
func TestRefusesAnotherBus(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	f := newFleet(t, js, 1)
	f.publish(20)
	o := f.options(tempPath(t))
	o.Since = longAgo
	f.recordAll(o)
	fails := func(o Options, want string) {
		t.Helper()
		before, err := os.ReadFile(o.Path)
		check(t, err)
		if err := New(o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if after, err := os.ReadFile(o.Path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the recording was changed: %v", err)
		}
	}
	other := o
	other.Selection.Host = "gpu-1"
	fails(other, "another selection (everything)")
	foreign := newFleet(t, bustest.Connect(t), 1)
	foreign.publish(30)
	fails(foreign.options(o.Path), "was created at")

	w, found, err := recording.Append(o.Path)
	check(t, err)
	check(t, w.Append(&recording.Message{Shard: 0, Sequence: 99, Stored: time.Now()}))
	check(t, w.Close())
	fails(o, "ends with message 20, and message 99 is recorded")
	check(t, js.DeleteStream(t.Context(), found.Streams[0].Name))
	f.shard(1)
	fails(o, "was created at")
	check(t, os.WriteFile(o.Path, []byte("a file of somebody else, longer than a head"), 0o644))
	fails(o, "not a recording")
}

// TestRemovedMessagesAreCounted removes messages between two runs of the recorder.
func TestRemovedMessagesAreCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	f.publish(20)
	o := f.options(tempPath(t))
	o.Since = longAgo
	f.recordAll(o)
	f.publish(20)
	stream, err := f.js.Stream(t.Context(), schema.StreamName(0))
	check(t, err)
	check(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(28))) // 28 is the first that stays
	if s := f.recordAll(o); s.Removed != 7 || s.Lost() == nil || s.Messages != 13 {
		t.Errorf("%+v, %v", s, s.Lost())
	}
	check(t, stream.Purge(t.Context()))
	if s := f.recordAll(o); s.Removed != 0 {
		t.Errorf("%+v: recorded messages count as removed", s)
	}
	f.publish(5)
	check(t, stream.Purge(t.Context()))
	if s := f.recordAll(o); s.Removed != 5 {
		t.Errorf("%+v: want 5 removed messages of an empty stream", s)
	}
}

// TestKillLosesNothing kills a recorder process while messages are published, several times.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	s := bustest.Run(t, &server.Options{JetStream: true})
	f := newFleet(t, bustest.Dial(t, s.ClientURL()), 2)
	o := f.options(tempPath(t))
	f.recordAll(o) // so that the recording begins with message 1
	for range 3 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childURL+"="+s.ClientURL(), childPath+"="+o.Path)
		before, err := os.Stat(o.Path)
		check(t, err)
		check(t, child.Start())
		bustest.Eventually(t, "the recording grows", func() bool {
			f.publish(5)
			now, err := os.Stat(o.Path)
			return err == nil && now.Size() > before.Size()
		})
		f.publish(5)
		check(t, child.Process.Kill())
		_ = child.Wait()
		readFile(t, o.Path)
		f.publish(5)
	}
	f.recordAll(o)
	got := readFile(t, o.Path)
	expect(t, got.messages, f.messages(func(int, *published) bool { return true }))
	expectLive(t, "at the end", got.end, f.live(len(f.published)))
}

// TestSurvivesARestartOfNATS restarts the server while the recorder runs.
func TestSurvivesARestartOfNATS(t *testing.T) {
	t.Parallel()
	s := bustest.NewServer(t, "")
	f := newFleet(t, s.Connect(), 1)
	o := f.options(tempPath(t))
	r := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-r.Ready()
	f.publish(20)
	s.Stop()
	s.Start()
	bustest.Eventually(t, "NATS answers", func() bool {
		_, err := f.js.AccountInfo(t.Context())
		return err == nil
	})
	f.publish(20)
	cancel()
	check(t, <-ended)
	expect(t, readFile(t, o.Path).messages, f.messages(func(int, *published) bool { return true }))
}

// TestFullDisk ends with an error, and the file stays whole.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	f.publish(20)
	o := f.options("")
	o.Since, o.To = longAgo, failing{}
	r := New(o)
	if err := r.Run(t.Context()); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("ends with %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
