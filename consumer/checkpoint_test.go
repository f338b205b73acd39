package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// TestCommitInDoubt: a commit whose ack never came may have been stored. The next one must find out before it
// writes over parts that the newest manifest may name.
func TestCommitInDoubt(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("stored=%v", stored), func(t *testing.T) {
			f := newFleet(t, 1)
			store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
			m, err := store.claim(t.Context(), "one", false)
			if err != nil {
				t.Fatal(err)
			}
			newest := func() string {
				t.Helper()
				latest, err := store.latest(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				state, err := store.load(t.Context(), &latest, 0)
				if err != nil {
					t.Fatal(err)
				}
				return string(state)
			}
			commit := func(state string) {
				t.Helper()
				if err := store.commit(t.Context(), &m, m, []byte(state)); err != nil {
					t.Fatal(err)
				}
			}
			commit("first")
			if stored { // all of it but the ack
				other, unaware := *store, m
				if err := other.commit(t.Context(), &unaware, unaware, []byte("second")); err != nil {
					t.Fatal(err)
				}
				store.attempts = other.attempts
			}
			store.doubt = true
			next := m
			if err := store.settle(t.Context(), &m); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{false: "first", true: "second"}[stored]
			if got := newest(); got != want {
				t.Errorf("settled at %q, want %q", got, want)
			}
			// Until the manifest is replaced, what it names must be whole.
			next.Parts = ""
			if err := store.commit(t.Context(), &m, next, []byte("third")); err != nil {
				t.Fatal(err)
			}
			if got := newest(); got != "third" {
				t.Errorf("the state is %q", got)
			}
			commit("fourth")
			if got := newest(); got != "fourth" {
				t.Errorf("the state is %q", got)
			}
		})
	}
}

// TestStopAmidCommit: an instance that is told to stop while a commit is under way commits once more, and what it leaves
// can be taken up.
func TestStopAmidCommit(t *testing.T) {
	f := newFleet(t, 1)
	for i := range 40 {
		c := f.instance("one", newChain)
		f.send("h")
		eventually(t, "it folds", func() bool { return len(c.shards()) == 1 })
		time.Sleep(time.Duration(i) * 3 * time.Millisecond) // somewhere between two checkpoints
		f.send("h")
		c.stop()
		if n := c.counters.rebuilt.Load(); n != 0 {
			t.Fatalf("start %d found a state that it had to rebuild", i)
		}
	}
	f.finish() // who is stopped may leave the last message to the next
	f.expect(f.committed())
}

// TestOneDeadLetter: a batch of no use that comes again after a crash is not copied again.
func TestOneDeadLetter(t *testing.T) {
	f := newFleet(t, 1)
	if _, err := f.admin.Publish(t.Context(), schema.Subject(0, "c", "evil", schema.KindMemory), []byte("none")); err != nil {
		t.Fatal(err)
	}
	letters := func() uint64 { return info(t, f.admin, schema.DeadLetterStream).State.Msgs }
	for range 2 {
		f.send("h")
		r, stop := start(t, f.admin, newChain(), ReaderOptions{}) // it saves nothing
		wait(t, r, 2)
		if s := r.Stats(); s.Invalid != 1 || s.DeadLetters != 1 || s.DeadLettersLost != 0 {
			t.Errorf("%+v", s)
		}
		stop()
	}
	if n := letters(); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
	if _, err := f.admin.Publish(t.Context(), schema.Subject(0, "c", "evil", schema.KindMemory), []byte("none")); err != nil {
		t.Fatal(err)
	}
	r, stop := start(t, f.admin, newChain(), ReaderOptions{})
	defer stop()
	wait(t, r, 4)
	if n := letters(); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}

// TestOwnersLeaveNothing: what the owners before have stored is freed.
func TestOwnersLeaveNothing(t *testing.T) {
	f := newFleet(t, 1)
	big := bytes.Repeat([]byte("state"), partBytes) // five parts
	for i := range 8 {
		store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
		m, err := store.claim(t.Context(), fmt.Sprint("owner", i), false)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := store.commit(t.Context(), &m, m, big); err != nil {
				t.Fatal(err)
			}
		}
		m.Parts = fmt.Sprintf("%d.c", m.Epoch) // parts of a commit that was never made
		if err := store.writeParts(t.Context(), &m, big); err != nil {
			t.Fatal(err)
		}
	}
	jsStream, err := f.admin.Stream(t.Context(), schema.StateStream)
	if err != nil {
		t.Fatal(err)
	}
	var info *jetstream.StreamInfo
	eventually(t, "one manifest and the last owner's parts are left", func() bool {
		info, err = jsStream.Info(t.Context())
		return err == nil && info.State.Msgs <= 1+3*5
	})
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	latest, err := store.latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := store.load(t.Context(), &latest, 0); err != nil || !bytes.Equal(state, big) {
		t.Errorf("the state that counts is gone too: %v", err)
	}
}

// TestBusAwayIsNoDamage: a state that cannot be read now is not one to rebuild.
func TestBusAwayIsNoDamage(t *testing.T) {
	f := newFleet(t, 1)
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	m, err := store.claim(t.Context(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.commit(t.Context(), &m, m, []byte("state")); err != nil {
		t.Fatal(err)
	}
	f.bus.stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := store.load(ctx, &m, 0); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("says %v", err)
	}
}

// mute is a bus that takes messages and acks none.
type mute struct{ jetstream.JetStream }

func (mute) PublishMsgAsync(*nats.Msg, ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	return unacked{}, nil
}

type unacked struct{ jetstream.PubAckFuture }

func (unacked) Ok() <-chan *jetstream.PubAck { return nil }
func (unacked) Err() <-chan error            { return nil }

// TestAckOfAPartLost: a part whose ack never comes fails the commit, and nothing is in doubt.
func TestAckOfAPartLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpoints{js: mute{}, fold: "chain"}
		err := store.commit(t.Context(), &manifest{Form: manifestForm, Epoch: 1}, manifest{}, []byte("state"))
		if !errors.Is(err, jetstream.ErrAsyncPublishTimeout) || store.doubt {
			t.Errorf("says %v, in doubt: %t", err, store.doubt)
		}
	})
}

// refusing is a bus that refuses all manifests.
type refusing struct {
	jetstream.JetStream
	refusal error
}

func (r refusing) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return nil, r.refusal
}

// showing are states of which one manifest is the newest, or none.
type showing struct {
	jetstream.Stream
	newest *jetstream.RawStreamMsg
}

func (s showing) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	if s.newest == nil {
		return nil, jetstream.ErrMsgNotFound
	}
	return s.newest, nil
}

// TestManifestRefused: a commit ends when the bus goes on refusing its manifest. It is fenced when what its owner has stored is
// no more: then nothing that it can write will ever be taken.
func TestManifestRefused(t *testing.T) {
	newest := &jetstream.RawStreamMsg{Sequence: 5, Data: []byte(`{"form":1,"owner":"one","epoch":1,"commit":1}`)}
	wrong := &jetstream.APIError{ErrorCode: 10071, Description: "wrong last sequence"}
	full := &jetstream.APIError{ErrorCode: 10077, Description: "maximum bytes exceeded"}
	for _, tt := range []struct {
		name    string
		refusal error
		newest  *jetstream.RawStreamMsg
		doubt   bool
		want    error
	}{
		{"full", full, newest, false, full},
		{"full, in doubt", full, newest, true, full},
		{"made anew", wrong, nil, true, errFenced},
		{"made anew, and not in doubt", wrong, nil, false, errFenced},
		{"made anew and full", full, nil, true, full},
		{"a replica is behind", wrong, newest, true, wrong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &checkpoints{js: refusing{refusal: tt.refusal}, jsStream: showing{newest: tt.newest}, fold: "chain", doubt: tt.doubt}
				m := manifest{Form: manifestForm, Owner: "one", Epoch: 1, Commit: 1, revision: 5}
				if err := store.commit(t.Context(), &m, manifest{}, nil); !errors.Is(err, tt.want) {
					t.Errorf("says %v, want %v", err, tt.want)
				}
				if store.doubt != (tt.doubt || tt.want != errFenced) {
					t.Errorf("in doubt: %t", store.doubt)
				}
			})
		})
	}
}
