package shard

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// newCheckpointer has claimed shard 0, with a state that must be saved.
func newCheckpointer(t *testing.T, js jetstream.JetStream, reader Reader, log *logBuffer) *checkpointer {
	t.Helper()
	c := &checkpointer{
		store: store{js: js, fold: "chain"}, reader: reader, every: time.Nanosecond, counters: &Counters{},
		unsaved: true,
		log:     slog.New(slog.NewJSONHandler(log, nil)),
	}
	c.manifest = mustClaim(t, &c.store, "one")
	c.begin()
	return c
}

// TestFailedCheckpointsBackOff: the state is not copied again at once for a checkpoint that has no room, and not at all
// while NATS is unreachable. When NATS is back, the state is saved without a wait.
func TestFailedCheckpointsBackOff(t *testing.T) {
	t.Parallel()
	srv := bustest.NewServer(t, "")
	js := srv.Connect()
	setUp(t, js, 1)
	room := func(bytes int64) {
		t.Helper()
		config := info(t, js, schema.StateStream).Config
		config.MaxBytes = bytes
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	var log logBuffer
	reader := &fakeReader{takes: 60 * time.Millisecond}
	c := newCheckpointer(t, js, reader, &log)
	room(1)
	for range 3 {
		if err := c.checkpointIfDue(t.Context()); err == nil {
			t.Fatal("a checkpoint was written without room")
		}
	}
	if reader.saves != 1 {
		t.Errorf("the state was copied %d times in a row", reader.saves)
	}
	logged := func(msg string, want int) {
		t.Helper()
		if n := log.count(msg); n != want {
			t.Errorf("%q was logged %d times, want %d", msg, n, want)
		}
	}
	if err := c.checkpoint(t.Context()); err == nil {
		t.Fatal("a checkpoint was written without room")
	}
	logged("checkpoint failed", 1)
	room(1 << 20)
	bustest.Eventually(t, "it is tried again", func() bool { return c.checkpointIfDue(t.Context()) == nil })
	logged("checkpoints succeed again", 1)

	srv.Stop()
	bustest.Eventually(t, "NATS is unreachable", func() bool { return !js.Conn().IsConnected() })
	c.unsaved = true
	before := reader.saves
	if err := c.checkpointIfDue(t.Context()); err == nil || reader.saves != before {
		t.Errorf("%d copies while NATS is unreachable: %v", reader.saves-before, err)
	}
	srv.Start()
	bustest.Eventually(t, "NATS is back", js.Conn().IsConnected)
	if err := c.checkpointIfDue(t.Context()); err != nil || c.counters.Commits.Load() != 2 {
		t.Errorf("%d commits: %v", c.counters.Commits.Load(), err)
	}
}

// TestCheckpointsAreDue: a checkpoint is written when something was folded and it is time, or when the state must be
// saved.
func TestCheckpointsAreDue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		every   time.Duration
		cost    time.Duration
		folded  bool
		unsaved bool
		due     bool
	}{
		{"nothing folded", time.Nanosecond, 0, false, false, false},
		{"folded", time.Nanosecond, 0, true, false, true},
		{"folded too soon", time.Hour, 0, true, false, false},
		{"expensive", time.Nanosecond, time.Minute, true, false, false},
		{"unsaved", time.Hour, time.Minute, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reader := &fakeReader{state: []byte("state")}
			c := newCheckpointer(t, connectReady(t, 1), reader, &logBuffer{})
			c.every, c.cost, c.unsaved = tt.every, tt.cost, tt.unsaved
			if tt.folded {
				reader.at.Sequence = 1
			}
			old := time.Now().Add(-10 * time.Minute)
			c.written.Store(&old)
			if err := c.checkpointIfDue(t.Context()); err != nil {
				t.Fatal(err)
			}
			if due := c.counters.Commits.Load() == 1; due != tt.due {
				t.Errorf("written: %t, want %t", due, tt.due)
			}
			// A shard in which nothing happens has no old checkpoint.
			if isOld := c.written.Load().Equal(old); isOld != (tt.folded && !tt.due) {
				t.Errorf("the checkpoint is old: %t", isOld)
			}
		})
	}
}

// slowJS stores each part after a while, and as many at once as it gets.
type slowJS struct{ jetstream.JetStream }

func (slowJS) PublishMsg(ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if !bus.Sleep(ctx, 4*time.Second) {
		return nil, ctx.Err()
	}
	return &jetstream.PubAck{}, nil
}

// TestLastCheckpointIsPatient: it waits for a slow NATS that stores parts, and gives up when none is stored.
func TestLastCheckpointIsPatient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		js   jetstream.JetStream
		ok   bool
		most time.Duration
	}{
		{"slow", slowJS{}, true, 3 * stateTimeout},
		{"silent", muteJS{}, false, stateTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &checkpointer{
					store: store{js: tt.js, fold: "chain",
						swept: true}, log: slog.New(slog.DiscardHandler), counters: &Counters{},
					reader: &fakeReader{state: make([]byte, 3*requestsAtOnce*partBytes)}, unsaved: true,
				}
				began := time.Now()
				if err := c.lastCheckpoint(t.Context()); (err == nil) != tt.ok {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took > tt.most {
					t.Errorf("it took %s, want at most %s", took, tt.most)
				}
			})
		})
	}
}

// TestCostExcludesTheWaitForAStep: a checkpoint that waits for a slow step is not expensive.
func TestCostExcludesTheWaitForAStep(t *testing.T) {
	t.Parallel()
	reader := &fakeReader{}
	c := newCheckpointer(t, connectReady(t, 1), reader, &logBuffer{})
	reader.mu.Lock()
	var released time.Time
	time.AfterFunc(200*time.Millisecond, func() { // a slow step
		released = time.Now()
		reader.mu.Unlock()
	})
	if err := c.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if since := time.Since(released); c.cost > since {
		t.Errorf("it cost %s, and the step ended %s ago", c.cost, since)
	}
}

// TestFencedCheckpointIsLogged: an owner whose shard was claimed by another instance writes nothing, and says so.
func TestFencedCheckpointIsLogged(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	var log logBuffer
	c := newCheckpointer(t, js, &fakeReader{state: []byte("late")}, &log)
	other := newStore(js)
	m := mustClaim(t, other, "two")
	mustCommit(t, other, &m, "state")
	if err := c.checkpoint(t.Context()); err == nil || c.counters.Fenced.Load() != 1 ||
		log.count("checkpoint fenced") != 1 {
		t.Errorf("%v, %d fenced, log %s", err, c.counters.Fenced.Load(), log.text.String())
	}
	if got := newest(t, other); got != "state" {
		t.Errorf("the state is %q", got)
	}
}
