package embedded

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
)

// pipeDialer connects through Pipe.
type pipeDialer struct{ *Server }

func (d pipeDialer) Dial(string, string) (net.Conn, error) { return d.Pipe() }

// TestViewerMayAskAndReadOnly: it comes through a pipe alone, without a password.
func TestViewerMayAskAndReadOnly(t *testing.T) {
	t.Parallel()
	s, err := Start(t.TempDir(), config.Embedded{Listen: "127.0.0.1:0"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nc, js, err := s.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "GPUTAP_EV_000",
		Subjects: []string{"gputap.v1.ev.0.>"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe("gputap.v1.q.leak.0", func(m *nats.Msg) {
		_ = m.Respond([]byte("first"))
		_ = m.Respond([]byte("second"))
	}); err != nil {
		t.Fatal(err)
	}
	viewer, err := nats.Connect(nats.DefaultURL, nats.SetCustomDialer(pipeDialer{s}), nats.UserInfo(Viewer, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	inbox, err := viewer.SubscribeSync(viewer.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := viewer.PublishRequest("gputap.v1.q.leak.0", inbox.Subject, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "second"} {
		if m, err := inbox.NextMsg(20 * time.Second); err != nil || string(m.Data) != want {
			t.Errorf("got %+v, %v; want %s", m, err, want)
		}
	}
	for _, subject := range []string{"gputap.v1.ev.0.c.h.memory", "gputap.v1.out.alert.leak.c.h",
		"$JS.API.STREAM.DELETE.GPUTAP_EV_000", "$KV.gputap_lease.leak.0"} {
		if err := errors.Join(viewer.Publish(subject, nil), viewer.Flush()); err != nil {
			t.Fatal(err)
		}
		if err := viewer.LastError(); err == nil || !strings.Contains(err.Error(), subject) {
			t.Errorf("may publish to %s: %v", subject, err)
		}
	}
	address, _ := s.Listening()
	for _, user := range []string{Viewer, insider, "other", ""} {
		if c, err := nats.Connect(address, nats.UserInfo(user, "")); err == nil {
			t.Errorf("user %q comes in over TCP without a password", user)
			c.Close()
		}
	}
}
