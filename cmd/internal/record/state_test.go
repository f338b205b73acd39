package record

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestStateFromCheckpoint begins behind a checkpoint of leak. Then it removes the messages before the
// checkpoint: the state is complete only with the checkpoint.
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

// foldAll runs the fold of gputap-leak until it has saved checkpoints of all messages.
func (f *fleet) foldAll() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	c := consumer.New(consumer.Options{Settle: time.Millisecond, Retry: 10 * time.Millisecond}, f.js,
		func() consumer.Stateful { return fold.NewMemory(leak.Config{}) }, f.options("").Log)
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	want := f.live(len(f.published))
	bustest.Eventually(f.t, "leak has folded everything", func() bool {
		live := int64(0)
		c.Each(func(_ int, state consumer.Stateful) {
			live += int64(state.(*fold.Memory).Tracker.Report().Totals.LiveBytes)
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
	r := New(first)
	check(t, r.Run(t.Context()))
	s := r.Stats()
	if s.Files < 1 || s.FirstPath != numbered(o.Path, 1) || s.Path != numbered(o.Path, s.Files) {
		t.Errorf("%+v", s)
	}
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

// TestShardsBeginTogether publishes while the states are read, and writes newer checkpoints. Every shard begins before
// that, with the checkpoint from before.
func TestShardsBeginTogether(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 4)
	f.publish(40)
	f.foldAll()
	checkpointed := f.last()
	f.publish(40)
	o := f.options(tempPath(t))
	read := 0
	o.Log = slog.New(onMessage{slog.DiscardHandler, func(line slog.Record) {
		if line.Message != "state of leak" {
			return
		}
		of := map[string]uint64{}
		line.Attrs(func(a slog.Attr) bool {
			if n, isNumber := a.Value.Any().(uint64); isNumber {
				of[a.Key] = n
			}
			return true
		})
		if !slices.Contains(slices.Collect(maps.Values(checkpointed)), of["from"]) {
			t.Errorf("a state is read from message %d, want the checkpoints %v", of["from"], checkpointed)
		}
		if read++; read == 1 {
			f.publish(20)
			f.foldAll()
		}
	}})
	f.recordAll(o)
	if read < 2 {
		t.Fatalf("%d shards have a state to read", read)
	}
	got := readFile(t, o.Path)
	expect(t, got.messages, f.messages(func(i int, _ *published) bool { return i >= 80 }))
	expectLive(t, "at the beginning", got.live, f.live(80))
}

// onMessage calls a function for each line of a log.
type onMessage struct {
	slog.Handler
	see func(slog.Record)
}

func (h onMessage) Enabled(context.Context, slog.Level) bool { return true }

func (h onMessage) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	h.see(r)
	return nil
}
