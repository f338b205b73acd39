package consumer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// poisoned returns a reader that has fetched three batches and whose fold will panic over the second. NATS is
// unreachable.
func poisoned(t *testing.T) (b *bustest.Server, js jetstream.JetStream, r *Reader, fold *recorder, stop func()) {
	b = bustest.NewServer(t, "")
	js = b.Connect()
	ensure(t, js)
	fold = &recorder{hold: make(chan struct{}), poison: 2}
	publishMemory(t, js, 1, 2, 3)
	r, stop = start(t, js, fold, ReaderOptions{})
	fold.hold <- struct{}{}
	until(t, js, func(i *jetstream.ConsumerInfo) bool { return i.Delivered.Stream == 3 && i.NumWaiting > 0 })
	if err := js.Conn().Flush(); err != nil { // all messages have arrived
		t.Fatal(err)
	}
	wait(t, r, 1)
	b.Stop()
	eventually(t, "NATS is unreachable", func() bool { return !js.Conn().IsConnected() })
	close(fold.hold)
	return b, js, r, fold, stop
}

func TestDeadLetterWaitsForNATS(t *testing.T) {
	t.Parallel()
	b, js, r, fold, _ := poisoned(t)
	b.Start()
	eventually(t, "NATS is back", js.Conn().IsConnected)
	wait(t, r, 3)
	expect(t, fold, 1, 3)
	if n := info(t, js, schema.DeadLetterStream).State.Msgs; n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
	if s := r.Stats(); s.DeadLetters != 1 || s.DeadLettersLost != 0 || s.Refused != 1 {
		t.Errorf("%d kept, %d lost, %d refused, want 1, 0, 1", s.DeadLetters, s.DeadLettersLost, s.Refused)
	}
}

// TestStopDoesNotWaitForDeadLetter: not while NATS is unreachable.
func TestStopDoesNotWaitForDeadLetter(t *testing.T) {
	t.Parallel()
	_, _, r, _, stop := poisoned(t)
	stop()
	if s := r.Stats(); s.DeadLetters != 0 || s.DeadLettersLost != 1 {
		t.Errorf("%d kept, %d lost, want 0, 1", s.DeadLetters, s.DeadLettersLost)
	}
}

// TestRefusedDeadLetterIsSkipped: a fold without permission to write dead letters keeps folding. With permission,
// earlier refusals do not count.
func TestRefusedDeadLetterIsSkipped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := func(denied ...string) *server.Options {
		may := &server.Permissions{Publish: &server.SubjectPermission{Deny: denied}}
		return &server.Options{
			Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
			Users: []*server.User{{Username: "admin", Password: "x"},
				{Username: "fold", Password: "x", Permissions: may}},
		}
	}
	s, err := server.NewServer(options(schema.DeadLetterSubjects))
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	connect := func(user string) jetstream.JetStream {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "x"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	admin := connect("admin")
	ensure(t, admin)
	fold := &recorder{poison: 2}
	js := connect("fold")
	r, _ := start(t, js, fold, ReaderOptions{})
	wait(t, r, publishMemory(t, admin, 1, 2, 3))
	expect(t, fold, 1, 3)
	if s := r.Stats(); s.DeadLetters != 0 || s.DeadLettersLost != 1 {
		t.Errorf("%d kept, %d lost, want 0, 1", s.DeadLetters, s.DeadLettersLost)
	}
	if err := s.ReloadOptions(options()); err != nil {
		t.Fatal(err)
	}
	r = NewReader(ReaderOptions{}, &hesitant{JetStream: js}, &recorder{}, slog.New(slog.DiscardHandler))
	r.deadLetter(evil{}, &jetstream.MsgMetadata{}, errNoSeq)
	if s, n := r.Stats(), js.Conn().Stats().Reconnects; s.DeadLetters != 1 || n != 0 {
		t.Errorf("%d kept, want 1, after %d reconnects", s.DeadLetters, n)
	}
}

// hesitant is a bus that does not answer the first time.
type hesitant struct {
	jetstream.JetStream
	asked bool
}

func (h *hesitant) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck,
	error) {
	if !h.asked {
		h.asked = true
		return nil, context.DeadlineExceeded
	}
	return h.JetStream.PublishMsg(ctx, m, opts...)
}

// TestDeadLetterStreamKeepsItsLimits: also while it exists and nobody answers for it, such as during an election.
func TestDeadLetterStreamKeepsItsLimits(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	own := jetstream.StreamConfig{
		Name: schema.DeadLetterStream, Subjects: []string{"nobody.answers.to.letters"}, MaxBytes: 1 << 20,
		Duplicates: time.Second,
	}
	if _, err := js.CreateStream(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	r := NewReader(ReaderOptions{}, js, &recorder{}, slog.New(slog.DiscardHandler))
	if err := r.publishLetter(&nats.Msg{Subject: schema.DeadLetterSubject("recorder", 0)}, "id"); !errors.Is(err,
		errNoLeader) {
		t.Errorf("gives %v", err)
	}
	if c := info(t, js, schema.DeadLetterStream).Config; c.MaxBytes != own.MaxBytes || c.Duplicates != own.Duplicates {
		t.Errorf("keeps %d bytes and ids for %s now", c.MaxBytes, c.Duplicates)
	}
}

// unanswering is a bus that is there and leaves dead letters without an answer.
type unanswering struct {
	jetstream.JetStream
	tried, kept int
	answers     bool
}

func (u *unanswering) PublishMsg(ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck,
	error) {
	u.tried++
	if u.answers {
		u.kept++
		return &jetstream.PubAck{}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestUnansweredDeadLettersBackOff: a fold waits for an answer now and then, not for each letter.
func TestUnansweredDeadLettersBackOff(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	synctest.Test(t, func(t *testing.T) {
		bus := &unanswering{JetStream: js}
		r := NewReader(ReaderOptions{}, bus, &recorder{}, slog.New(slog.DiscardHandler))
		letters := func(n int) (took time.Duration) {
			began := time.Now()
			for range n {
				r.deadLetter(evil{}, &jetstream.MsgMetadata{}, errNoSeq)
			}
			return time.Since(began)
		}
		if took := letters(1); took < deadLetterPatience {
			t.Errorf("the first is given %s", took)
		}
		if took := letters(100); took != 0 {
			t.Errorf("the next hundred are given %s", took)
		}
		time.Sleep(deadLetterPatience)
		bus.tried = 0
		if took := letters(100); took != deadLetterTimeout || bus.tried != 1 {
			t.Errorf("a hundred are given %s in %d tries, want one", took, bus.tried)
		}
		bus.answers = true
		time.Sleep(deadLetterPatience)
		if took := letters(100); took != 0 || bus.kept != 100 {
			t.Errorf("%d of a hundred are kept by a bus that answers again, after %s", bus.kept, took)
		}
	})
}

// TestDeadLetterIsLogged: the log says whether it was stored, and where the message is if not.
func TestDeadLetterIsLogged(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	for kept, data := range map[bool][]byte{true: {1}, false: make([]byte, js.Conn().MaxPayload())} {
		var log logPage
		r := NewReader(ReaderOptions{}, js, &recorder{}, slog.New(slog.NewTextHandler(&log, nil)))
		r.deadLetter(useless{data: data},
			&jetstream.MsgMetadata{Stream: "S", Sequence: jetstream.SequencePair{Stream: 7}}, errNoSeq)
		text := log.text.String()
		if s := r.Stats(); (s.DeadLetters == 1) != kept || strings.Count(text, "\n") != 1 ||
			strings.Contains(text, "useless batch copied to") != kept {
			t.Errorf("%d are kept, and it says\n%s", s.DeadLetters, text)
		}
		if !strings.Contains(text, "stream=S seq=7") || strings.Contains(text, nats.ErrMaxPayload.Error()) == kept {
			t.Errorf("of one that is kept (%t) it says\n%s", kept, text)
		}
	}
}

type useless struct {
	evil
	data []byte
}

func (u useless) Data() []byte { return u.data }

// evil is a message of no use.
type evil struct{ jetstream.Msg }

func (evil) Subject() string { return "evil" }
func (evil) Data() []byte    { return nil }

// TestDeadLetterIsNotDuplicated: an invalid batch that is read again after a crash is not copied again.
func TestDeadLetterIsNotDuplicated(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	if _, err := f.admin.Publish(t.Context(), schema.Subject(0, "c", "evil", schema.KindMemory),
		[]byte("none")); err != nil {
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
	if _, err := f.admin.Publish(t.Context(), schema.Subject(0, "c", "evil", schema.KindMemory),
		[]byte("none")); err != nil {
		t.Fatal(err)
	}
	r, stop := start(t, f.admin, newChain(), ReaderOptions{})
	defer stop()
	wait(t, r, 4)
	if n := letters(); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}
