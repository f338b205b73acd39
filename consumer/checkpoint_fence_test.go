package consumer

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// between does something when a manifest was read for the first time, before its reader goes on.
type between struct {
	jetstream.Stream
	do func()
}

func (b *between) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	raw, err := b.Stream.GetLastMsgForSubject(ctx, subject)
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return raw, err
}

// TestTwoClaim: of two that have read the same newest manifest and claim the shard, each gets an epoch of its own, and the one that
// was first cannot commit any more.
func TestTwoClaim(t *testing.T) {
	for _, row := range []struct {
		name   string
		before uint64 // claims
	}{{"nobody before", 0}, {"an owner before", 1}} {
		t.Run(row.name, func(t *testing.T) {
			f := newFleet(t, 1)
			stores := func() *checkpoints { return &checkpoints{js: f.admin, fold: "chain", shard: 0} }
			for range row.before {
				if _, err := stores().claim(t.Context(), "zero", false); err != nil {
					t.Fatal(err)
				}
			}
			jsStream, err := f.admin.Stream(t.Context(), schema.StateStream)
			if err != nil {
				t.Fatal(err)
			}
			first, second := stores(), stores()
			var one manifest
			second.jsStream = &between{Stream: jsStream, do: func() {
				if one, err = first.claim(t.Context(), "one", false); err != nil {
					t.Error(err)
				}
			}}
			two, err := second.claim(t.Context(), "two", false)
			if err != nil {
				t.Fatal(err)
			}
			if one.Epoch != row.before+1 || two.Epoch != row.before+2 {
				t.Errorf("epochs %d and %d, want %d and the one after", one.Epoch, two.Epoch, row.before+1)
			}
			if err := first.commit(t.Context(), &one, one, []byte("one")); !errors.Is(err, errFenced) {
				t.Errorf("the first one commits: %v, want %v", err, errFenced)
			}
			if err := second.commit(t.Context(), &two, two, []byte("two")); err != nil {
				t.Error(err)
			}
			if saved, err := Saved(t.Context(), f.admin, "chain", 0); err != nil || string(saved.State) != "two" || saved.Epoch != two.Epoch {
				t.Errorf("saved is %q of epoch %d, %v", saved.State, saved.Epoch, err)
			}
		})
	}
}
