package consumer

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// heavy is a chain whose state takes some time to copy.
type heavy struct {
	*chain
	copies int
}

func (h *heavy) Snapshot(yield func(Section) error) error {
	h.copies++
	time.Sleep(60 * time.Millisecond)
	return h.chain.Snapshot(yield)
}

// owner has claimed shard 0, with a state that is to be saved, and folds nothing.
func (f *fleet) owner(fold Stateful) *owned {
	f.t.Helper()
	o := &owned{js: f.admin, every: time.Nanosecond, log: slog.New(slog.NewJSONHandler(&f.log, nil)), counters: &ownerCounters{}, unsaved: true}
	o.store = checkpoints{js: f.admin, fold: fold.Name()}
	o.fold, o.reader = fold, newReader(ReaderOptions{}, f.admin, fold, o.log)
	var err error
	if o.manifest, err = o.store.claim(f.t.Context(), "one", false); err != nil {
		f.t.Fatal(err)
	}
	return o
}

// TestCheckpointsThatFail: a state is not copied all the time for checkpoints that have no room, and not at all while the bus is away;
// when it is back, the state is saved without a wait.
func TestCheckpointsThatFail(t *testing.T) {
	f := newFleet(t, 1)
	room := func(bytes int64) {
		t.Helper()
		config := info(t, f.admin, schema.StateStream).Config
		config.MaxBytes = bytes
		if _, err := f.admin.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	fold := &heavy{chain: newChain().(*chain)}
	o := f.owner(fold)
	room(1)
	for range 3 {
		if err := o.checkpointDue(t.Context()); err == nil {
			t.Fatal("a checkpoint was written where none has room")
		}
	}
	if fold.copies != 1 {
		t.Errorf("the state was copied %d times in a row", fold.copies)
	}
	said := func(what string, want int) {
		t.Helper()
		if n := strings.Count(f.log.text.String(), what); n != want {
			t.Errorf("%q was said %d times, want %d", what, n, want)
		}
	}
	if err := o.checkpoint(t.Context()); err == nil { // its time has come again
		t.Fatal("a checkpoint was written where none has room")
	}
	said("checkpoint was not written", 1)
	room(1 << 20)
	eventually(t, "it is tried again", func() bool { return o.checkpointDue(t.Context()) == nil })
	said("checkpoints are written again", 1)

	f.bus.stop()
	eventually(t, "the bus is away", func() bool { return !f.admin.Conn().IsConnected() })
	o.unsaved = true
	before := fold.copies
	if err := o.checkpointDue(t.Context()); err == nil || fold.copies != before {
		t.Errorf("a bus that is away is given %d copies: %v", fold.copies-before, err)
	}
	f.bus.start()
	eventually(t, "the bus is back", f.admin.Conn().IsConnected)
	if err := o.checkpointDue(t.Context()); err != nil || o.counters.commits.Load() != 2 {
		t.Errorf("%d commits: %v", o.counters.commits.Load(), err)
	}
}

// sluggish is a bus that takes each part in the end, and as many at a time as it is given.
type sluggish struct{ jetstream.JetStream }

func (sluggish) PublishMsg(ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if !sleep(ctx, 4*time.Second) {
		return nil, ctx.Err()
	}
	return &jetstream.PubAck{}, nil
}

// large is a chain whose state has many parts.
type large struct{ *chain }

func (large) Snapshot(yield func(Section) error) error {
	return yield(Section{Cluster: "c", Host: "h", Data: make([]byte, 3*partsAtOnce*partBytes)})
}

// TestLastCheckpoint: an instance that ends saves a large state on a slow bus, and waits no longer for one that takes nothing.
func TestLastCheckpoint(t *testing.T) {
	for _, tt := range []struct {
		name string
		js   jetstream.JetStream
		ok   bool
		most time.Duration
	}{
		{"slow", sluggish{}, true, 3 * stateTimeout},
		{"silent", mute{}, false, stateTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fold := large{newChain().(*chain)}
				o := &owned{log: slog.New(slog.DiscardHandler), counters: &ownerCounters{}, unsaved: true, fold: fold}
				o.store = checkpoints{js: tt.js, fold: "chain", swept: true}
				o.reader = newReader(ReaderOptions{}, tt.js, fold, o.log)
				began := time.Now()
				if err := o.lastCheckpoint(t.Context()); (err == nil) != tt.ok {
					t.Errorf("says %v", err)
				}
				if took := time.Since(began); took > tt.most {
					t.Errorf("it took %s, want at most %s", took, tt.most)
				}
			})
		})
	}
}

// TestTheCostOfACheckpoint: that a step keeps it waiting, such as one with a dead letter that has no answer, is none.
func TestTheCostOfACheckpoint(t *testing.T) {
	f := newFleet(t, 1)
	o := f.owner(newChain())
	o.reader.stepping.Lock()
	var released time.Time
	go func() {
		time.Sleep(200 * time.Millisecond) // a slow step
		released = time.Now()
		o.reader.stepping.Unlock()
	}()
	if err := o.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if since := time.Since(released); o.cost > since {
		t.Errorf("it cost %s, and the step ended %s ago", o.cost, since)
	}
}
