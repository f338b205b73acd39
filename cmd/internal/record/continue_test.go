package record

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

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

// TestLostOnTheWay takes messages away from the JetStream consumer of the recorder, the last one included. The recorder
// reads them again.
func TestLostOnTheWay(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	o := f.options(tempPath(t))
	r := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-r.Ready()
	stream, err := f.js.Stream(t.Context(), schema.StreamName(0))
	check(t, err)
	var name string
	bustest.Eventually(t, "a JetStream consumer", func() bool {
		for found := range stream.ConsumerNames(t.Context()).Name() {
			name = found
		}
		return name != ""
	})
	thief, err := stream.Consumer(t.Context(), name)
	check(t, err)
	batch, err := thief.Fetch(1, jetstream.FetchMaxWait(20*time.Second))
	check(t, err)
	for taken := false; !taken; {
		f.publish(1)
		select {
		case _, taken = <-batch.Messages():
		case <-time.After(50 * time.Millisecond):
		}
	}
	bustest.Eventually(t, "all messages are recorded", func() bool {
		return r.Stats().Messages == uint64(len(f.published))
	})
	cancel()
	check(t, <-ended)
	expect(t, readFile(t, o.Path).messages, f.messages(func(int, *published) bool { return true }))
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
