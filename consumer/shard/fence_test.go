package shard

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
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

// TestRacingClaimsFence: of two owners that read the same manifest and claim, each gets its own epoch, and the
// first cannot commit any more.
func TestRacingClaimsFence(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		before uint64 // claims
	}{{"nobody before", 0}, {"an owner before", 1}} {
		t.Run(row.name, func(t *testing.T) {
			js := connectReady(t, 1)
			stores := func() *store { return newStore(js) }
			for range row.before {
				if _, err := stores().claim(t.Context(), "zero", false); err != nil {
					t.Fatal(err)
				}
			}
			jsStream, err := js.Stream(t.Context(), schema.StateStream)
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
			if saved, err := Saved(t.Context(), js, "chain", 0); err != nil || string(saved.State) != "two" ||
				saved.Epoch != two.Epoch {
				t.Errorf("saved is %q of epoch %d, %v", saved.State, saved.Epoch, err)
			}
		})
	}
}

// TestFencedOwnerCannotCommit: an instance that was thought dead cannot replace the state of its successor.
func TestFencedOwnerCannotCommit(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	c := newStore(js)
	old, err := c.claim(t.Context(), "old", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.commit(t.Context(), &old, old, []byte("first")); err != nil {
		t.Fatal(err)
	}
	successor, err := c.claim(t.Context(), "successor", false)
	if err != nil || successor.Epoch != old.Epoch+1 {
		t.Fatalf("claim: %v, epoch %d after %d", err, successor.Epoch, old.Epoch)
	}
	if err := c.commit(t.Context(), &old, old, bytes.Repeat([]byte("zombie"), partBytes)); err == nil {
		t.Error("the zombie may commit")
	}
	if state, err := c.load(t.Context(), &successor, 0); err != nil || string(state) != "first" {
		t.Errorf("the successor loads %.20q, %v", state, err)
	}
	if err := c.commit(t.Context(), &successor, successor, []byte("second")); err != nil {
		t.Fatal(err)
	}
	latest, err := c.latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := c.load(t.Context(), &latest, 0); err != nil || string(state) != "second" {
		t.Errorf("the state is %.20q, %v", state, err)
	}
}

// TestOwnerOfRemovedBusCannotCommit: its manifest is older than any on the recreated bus.
func TestOwnerOfRemovedBusCannotCommit(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	c := newStore(js)
	old, err := c.claim(t.Context(), "old", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.RemoveStreams(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	setUp(t, js, 1)
	present := newStore(js)
	owner, err := present.claim(t.Context(), "owner", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.commit(t.Context(), &old, old, []byte("zombie")); !errors.Is(err, errFenced) {
		t.Errorf("the zombie's commit: %v", err)
	}
	if err := present.commit(t.Context(), &owner, owner, []byte("owner")); err != nil {
		t.Error(err)
	}
}
