package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// TestOwnersLeaveNothing: what the owners before have stored is freed, and what attempts that failed have.
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
		for range 3 { // commits that were never made
			store.js = refusing{JetStream: f.admin, refusal: &jetstream.APIError{ErrorCode: 10071}}
			if err := store.commit(t.Context(), &m, m, big); !errors.Is(err, errFenced) {
				t.Fatal(err)
			}
		}
	}
	jsStream, err := f.admin.Stream(t.Context(), schema.StateStream)
	if err != nil {
		t.Fatal(err)
	}
	var info *jetstream.StreamInfo
	eventually(t, "one manifest, the last state and the last attempt are left", func() bool {
		info, err = jsStream.Info(t.Context())
		return err == nil && info.State.Msgs == 1+2*5
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

// holding is a bus whose connection ends with what was sent: it comes later.
type holding struct {
	jetstream.JetStream
	held []*nats.Msg
}

func (h *holding) PublishMsg(_ context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	h.held = append(h.held, m)
	return nil, nats.ErrDisconnected
}

// TestLateAttempt: what an attempt that failed has sent comes when a later one has been committed.
func TestLateAttempt(t *testing.T) {
	f := newFleet(t, 1)
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	m, err := store.claim(t.Context(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	broken := &holding{JetStream: f.admin}
	for i := range 6 {
		state := []byte{byte(i)} // one part: what else is sent with one that fails is not always the same
		store.js = broken
		if err := store.commit(t.Context(), &m, m, []byte("late")); !errors.Is(err, nats.ErrDisconnected) {
			t.Fatal(err)
		}
		store.js = f.admin
		if err := store.commit(t.Context(), &m, m, state); err != nil {
			t.Fatal(err)
		}
		for _, late := range broken.held {
			if _, err := f.admin.PublishMsg(t.Context(), late); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := store.load(t.Context(), &m, 0); err != nil || !bytes.Equal(got, state) {
			t.Fatalf("commit %d: %v, %d bytes of %d", i, err, len(got), len(state))
		}
	}
	if want := 6 + 4; len(broken.held) != want {
		t.Errorf("%d messages came late, want %d: parts, and what frees those of the one before the last", len(broken.held), want)
	}
}

// TestStateOfTheBuildBefore: its parts, a and b in turn, are taken up and then freed.
func TestStateOfTheBuildBefore(t *testing.T) {
	f := newFleet(t, 1)
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	for subject, data := range map[string]string{
		"p.7.a.0": "before", "p.7.b.0": "st", "p.7.b.1": "ate", "p.7.b.2": "larger before", "p.6.a.0": "left",
		"m": `{"form":1,"owner":"two","epoch":7,"commit":9,"parts":"7.b","sums":[{"bytes":2,"crc32c":3437086942},{"bytes":3,"crc32c":1189116140}],"sequence":3}`,
	} {
		if _, err := f.admin.Publish(t.Context(), store.subject(subject), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := store.claim(t.Context(), "three", false)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := store.load(t.Context(), &m, 0); err != nil || string(state) != "state" {
		t.Errorf("loads %q, %v", state, err)
	}
	for range 2 {
		if err := store.commit(t.Context(), &m, m, []byte("next")); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"m", "p.8.1.0", "p.8.2.0"}
	eventually(t, "the rest is freed", func() bool { return slices.Equal(f.stateParts(store), want) })
}

// stateParts are the subjects that hold something of a shard.
func (f *fleet) stateParts(store *checkpoints) (parts []string) {
	f.t.Helper()
	jsStream, err := f.admin.Stream(f.t.Context(), schema.StateStream)
	if err != nil {
		f.t.Fatal(err)
	}
	info, err := jsStream.Info(f.t.Context(), jetstream.WithSubjectFilter(store.subject(">")))
	if err != nil {
		f.t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		parts = append(parts, strings.TrimPrefix(subject, store.subject("")))
	}
	slices.Sort(parts)
	return parts
}

// TestManifestOfNonsense: lengths and names that no part has are damage, like parts that are not what the manifest says.
func TestManifestOfNonsense(t *testing.T) {
	f := newFleet(t, 1)
	f.send("h")
	store := &checkpoints{js: f.admin, fold: "chain", shard: 0}
	for _, tt := range []struct {
		parts string
		bytes int
	}{{"7.1", -5}, {"7.1", 0}, {"7.1", partBytes + 1}, {"7.1", 1 << 62}, {"", 5}, {"7..1", 5}, {"7.*", 5}, {"7.1 2", 5}} {
		manifest := fmt.Sprintf(`{"form":1,"owner":"one","epoch":7,"parts":%q,"sums":[{"bytes":%d,"crc32c":1}],"sequence":3}`, tt.parts, tt.bytes)
		if _, err := f.admin.Publish(t.Context(), store.subject("m"), []byte(manifest)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := Saved(ctx, f.admin, "chain", 0); !errors.Is(err, errDamaged) {
			t.Errorf("%+v: %v", tt, err)
		}
		cancel()
	}
	i := f.instance("two", newChain)
	eventually(t, "the state is rebuilt", func() bool { return i.counters.commits.Load() > 0 })
	if n := i.counters.rebuilt.Load(); n != 1 {
		t.Errorf("%d states were rebuilt", n)
	}
	i.stop()
	f.finish()
	f.expect(f.committed())
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

func (mute) PublishMsg(ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAckOfAPartLost: a part whose ack never comes fails the commit, and nothing is in doubt.
func TestAckOfAPartLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpoints{js: mute{}, fold: "chain", swept: true}
		err := store.commit(t.Context(), &manifest{Form: manifestForm, Epoch: 1}, manifest{}, []byte("state"))
		if !errors.Is(err, context.DeadlineExceeded) || store.doubt {
			t.Errorf("says %v, in doubt: %t", err, store.doubt)
		}
	})
}

// TestNothingIsKeptOfPartsWithoutAnAck: attempts whose acks are lost leave nothing that a later one, when acks come again, would have to wait for.
func TestNothingIsKeptOfPartsWithoutAnAck(t *testing.T) {
	f := newFleet(t, 1)
	js, err := jetstream.New(f.admin.Conn(), jetstream.WithPublishAsyncMaxPending(2*partsAtOnce))
	if err != nil {
		t.Fatal(err)
	}
	store := &checkpoints{js: js, fold: "chain", shard: 0, swept: true}
	m, err := store.claim(t.Context(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	acks := func(come bool) {
		t.Helper()
		config := info(t, f.admin, schema.StateStream).Config
		config.NoAck = !come
		if _, err := f.admin.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	acks(false)
	state := make([]byte, partsAtOnce*partBytes)
	for range 2 {
		stored := info(t, f.admin, schema.StateStream).State.Msgs
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- store.commit(ctx, &m, m, state) }()
		eventually(t, "parts are stored", func() bool { return info(t, f.admin, schema.StateStream).State.Msgs == stored+partsAtOnce })
		giveUp()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		store.swept = true // or it would wait for the ack of what it frees
	}
	acks(true)
	if err := store.commit(t.Context(), &m, m, state); err != nil {
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

func (r refusing) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
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
				store := &checkpoints{js: refusing{refusal: tt.refusal}, jsStream: showing{newest: tt.newest}, fold: "chain", swept: true, doubt: tt.doubt}
				m := manifest{Form: manifestForm, Owner: "one", Epoch: 1, Commit: 1, revision: 5}
				if err := store.commit(t.Context(), &m, manifest{}, nil); !errors.Is(err, tt.want) {
					t.Errorf("says %v, want %v", err, tt.want)
				}
				if store.doubt != (tt.doubt || !errors.Is(tt.want, errFenced)) {
					t.Errorf("in doubt: %t", store.doubt)
				}
			})
		})
	}
}
