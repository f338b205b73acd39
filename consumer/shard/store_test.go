package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// TestOldPartsAreFreed: parts of earlier owners and of failed attempts.
func TestOldPartsAreFreed(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	big := bytes.Repeat([]byte("state"), partBytes) // five parts
	for i := range 8 {
		c := newStore(js)
		m, err := c.claim(t.Context(), fmt.Sprint("owner", i), false)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := c.commit(t.Context(), &m, m, big); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // commits that were never made
			c.js = refusing{JetStream: js, refusal: &jetstream.APIError{ErrorCode: 10071}}
			if err := c.commit(t.Context(), &m, m, big); !errors.Is(err, errFenced) {
				t.Fatal(err)
			}
		}
	}
	jsStream, err := js.Stream(t.Context(), schema.StateStream)
	if err != nil {
		t.Fatal(err)
	}
	var info *jetstream.StreamInfo
	bustest.Eventually(t, "one manifest, the last state and the last attempt are left", func() bool {
		info, err = jsStream.Info(t.Context())
		return err == nil && info.State.Msgs == 1+2*5
	})
	c := newStore(js)
	latest, err := c.latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := c.load(t.Context(), &latest, 0); err != nil || !bytes.Equal(state, big) {
		t.Errorf("the state that counts is gone too: %v", err)
	}
}

// holding keeps messages and fails, like a connection that breaks and delivers them later.
type holding struct {
	jetstream.JetStream
	held []*nats.Msg
}

func (h *holding) PublishMsg(_ context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	h.held = append(h.held, m)
	return nil, nats.ErrDisconnected
}

// TestLateMessagesDoNotHarm: messages of a failed attempt arrive after a later one was committed.
func TestLateMessagesDoNotHarm(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	c := newStore(js)
	m, err := c.claim(t.Context(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	broken := &holding{JetStream: js}
	for i := range 6 {
		state := []byte{byte(i)} // one part: what else is sent with one that fails is not always the same
		c.js = broken
		if err := c.commit(t.Context(), &m, m, []byte("late")); !errors.Is(err, nats.ErrDisconnected) {
			t.Fatal(err)
		}
		c.js = js
		if err := c.commit(t.Context(), &m, m, state); err != nil {
			t.Fatal(err)
		}
		for _, late := range broken.held {
			if _, err := js.PublishMsg(t.Context(), late); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := c.load(t.Context(), &m, 0); err != nil || !bytes.Equal(got, state) {
			t.Fatalf("commit %d: %v, %d bytes of %d", i, err, len(got), len(state))
		}
	}
	if want := 6 + 4; len(broken.held) != want {
		t.Errorf("%d messages came late, want %d: parts, and what frees those of the one before the last",
			len(broken.held), want)
	}
}

// TestUnreachableIsNotDamaged: a state that cannot be read now must not be rebuilt.
func TestUnreachableIsNotDamaged(t *testing.T) {
	t.Parallel()
	srv := bustest.NewServer(t, "")
	js := srv.Connect()
	setUp(t, js, 1)
	c := newStore(js)
	m, err := c.claim(t.Context(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.commit(t.Context(), &m, m, []byte("state")); err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.load(ctx, &m, 0); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("says %v", err)
	}
}

// muteJS is a bus that takes messages and acks none.
type muteJS struct{ jetstream.JetStream }

func (muteJS) PublishMsg(ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestUnansweredPartFailsCommit: nothing is in doubt then.
func TestUnansweredPartFailsCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &store{js: muteJS{}, fold: "chain", swept: true}
		err := c.commit(t.Context(), &manifest{Form: manifestForm, Epoch: 1}, manifest{}, []byte("state"))
		if !errors.Is(err, context.DeadlineExceeded) || c.inDoubt {
			t.Errorf("says %v, in doubt: %t", err, c.inDoubt)
		}
	})
}

// TestUnansweredPartsLeaveNothingPending: attempts without acks do not delay a later one.
func TestUnansweredPartsLeaveNothingPending(t *testing.T) {
	t.Parallel()
	admin := connectReady(t, 1)
	js, err := jetstream.New(admin.Conn(), jetstream.WithPublishAsyncMaxPending(2*requestsAtOnce))
	if err != nil {
		t.Fatal(err)
	}
	c := &store{js: js, fold: "chain", shard: 0, swept: true}
	m, err := c.claim(t.Context(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	acks := func(come bool) {
		t.Helper()
		config := info(t, js, schema.StateStream).Config
		config.NoAck = !come
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	acks(false)
	state := make([]byte, requestsAtOnce*partBytes)
	for range 2 {
		stored := info(t, js, schema.StateStream).State.Msgs
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.commit(ctx, &m, m, state) }()
		bustest.Eventually(t, "parts are stored",
			func() bool { return info(t, js, schema.StateStream).State.Msgs == stored+requestsAtOnce })
		giveUp()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		c.swept = true // or it would wait for the acks of freed parts
	}
	acks(true)
	if err := c.commit(t.Context(), &m, m, state); err != nil {
		t.Error(err)
	}
	if n := js.PublishAsyncPending(); n != 0 {
		t.Errorf("%d messages wait for their acks", n)
	}
}

// refusing is a bus that refuses all manifests.
type refusing struct {
	jetstream.JetStream
	refusal error
}

func (r refusing) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck,
	error) {
	if strings.HasSuffix(m.Subject, ".m") {
		return nil, r.refusal
	}
	return r.JetStream.PublishMsg(ctx, m, opts...)
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

// TestRefusedManifestEndsCommit: the owner is fenced if its own manifest does not exist any more: NATS will never
// accept its next one.
func TestRefusedManifestEndsCommit(t *testing.T) {
	t.Parallel()
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
				c := &store{js: refusing{refusal: tt.refusal}, jsStream: showing{newest: tt.newest}, fold: "chain",
					swept: true, inDoubt: tt.doubt}
				m := manifest{Form: manifestForm, Owner: "one", Epoch: 1, Commit: 1, revision: 5}
				if err := c.commit(t.Context(), &m, manifest{}, nil); !errors.Is(err, tt.want) {
					t.Errorf("says %v, want %v", err, tt.want)
				}
				if c.inDoubt != (tt.doubt || !errors.Is(tt.want, errFenced)) {
					t.Errorf("in doubt: %t", c.inDoubt)
				}
			})
		})
	}
}

// TestCommitInDoubt: a commit whose ack never came may have been stored. The next one finds out before it frees parts
// that the newest manifest may name.
func TestCommitInDoubt(t *testing.T) {
	t.Parallel()
	for _, wasStored := range []bool{false, true} {
		t.Run(fmt.Sprintf("stored=%v", wasStored), func(t *testing.T) {
			c := newStore(connectReady(t, 1))
			m := mustClaim(t, c, "one")
			mustCommit(t, c, &m, "first")
			if wasStored { // all of it but the ack
				other, unaware := *c, m
				mustCommit(t, &other, &unaware, "second")
				c.attempts = other.attempts
			}
			c.inDoubt = true
			next := m
			if err := c.settle(t.Context(), &m); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{false: "first", true: "second"}[wasStored]
			if got := newest(t, c); got != want {
				t.Errorf("settled at %q, want %q", got, want)
			}
			// Until the manifest is replaced, the parts that it names must be whole.
			next.Parts = ""
			if err := c.commit(t.Context(), &m, next, []byte("third")); err != nil {
				t.Fatal(err)
			}
			if got := newest(t, c); got != "third" {
				t.Errorf("the state is %q", got)
			}
			mustCommit(t, c, &m, "fourth")
			if got := newest(t, c); got != "fourth" {
				t.Errorf("the state is %q", got)
			}
		})
	}
}

// TestDamagedPartIsNotLoaded: not even if its length is right. A part that becomes right is loaded.
func TestDamagedPartIsNotLoaded(t *testing.T) {
	t.Parallel()
	c := newStore(connectReady(t, 1))
	m := mustClaim(t, c, "one")
	mustCommit(t, c, &m, "state")
	write := func(part string) {
		t.Helper()
		if _, err := c.js.Publish(t.Context(), c.partSubject(&m, 0), []byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{"stale", "sta", "state and more", ""} {
		write(part)
		if state, err := c.load(t.Context(), &m, 0); !errors.Is(err, errDamaged) {
			t.Errorf("of %q %q is loaded, %v", part, state, err)
		}
	}
	write("state")
	if got := newest(t, c); got != "state" {
		t.Errorf("the state is %q", got)
	}
}
