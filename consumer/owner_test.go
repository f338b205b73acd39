package consumer

import (
	"log/slog"
	"testing"
	"time"

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
	o := &owned{js: f.admin, every: time.Nanosecond, log: slog.New(slog.DiscardHandler), counters: &ownerCounters{}, unsaved: true}
	o.store = checkpoints{js: f.admin, fold: "chain"}
	o.fold, o.reader = fold, newReader(ReaderOptions{}, f.admin, fold, o.log)
	var err error
	if o.manifest, err = o.store.claim(t.Context(), "one", false); err != nil {
		t.Fatal(err)
	}
	room(1)
	for range 3 {
		if err := o.checkpointDue(t.Context()); err == nil {
			t.Fatal("a checkpoint was written where none has room")
		}
	}
	if fold.copies != 1 {
		t.Errorf("the state was copied %d times in a row", fold.copies)
	}
	room(1 << 20)
	eventually(t, "it is tried again", func() bool { return o.checkpointDue(t.Context()) == nil })

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
