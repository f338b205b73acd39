package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// newShard starts a nats-server in this process, with the stream of shard 0.
func newShard(t *testing.T) (nc *nats.Conn, js jetstream.JetStream, s jetstream.Stream) {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server did not start")
	}
	if nc, err = nats.Connect(srv.ClientURL(), nats.CustomInboxPrefix("_INBOX."+hostCluster+".host")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	s, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: schema.StreamName(0), Subjects: []string{schema.ShardSubjects(0)}, MaxMsgSize: 1000, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return nc, js, s
}

// TestPublishersStoreTheSameBytes: a raw publisher stores the messages of one subject, as those of another host.
// Deleted messages are skipped, and the time of the last ack is seen.
func TestPublishersStoreTheSameBytes(t *testing.T) {
	nc, js, s := newShard(t)
	from := schema.Subject(0, hostCluster, hostName, schema.KindLaunch)
	const count = 20
	var want [][]byte
	for i := range count {
		body := append([]byte{byte(i)}, hostName...)
		want = append(want, body)
		for _, subject := range []string{from, schema.Subject(0, hostCluster, hostName, schema.KindHost)} {
			if _, err := js.Publish(t.Context(), subject, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.DeleteMsg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	want = want[1:]
	other, err := nats.Connect(nc.ConnectedUrl())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	lastAck, err := watchAcks(other)
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(2 * count)
	for name, c := range map[string]struct {
		host   string
		window int
	}{"one by one": {hostName, 1}, "many in flight": {"traced-host-007", 4}} {
		to := schema.Subject(0, hostCluster, "to", schema.KindLaunch)
		messages, err := loadMessages(t.Context(), js, 1, from, to, c.host)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := publishAll(t.Context(), nc, messages, c.window); err != nil {
			t.Fatal(err)
		}
		for i, body := range want {
			m, err := s.GetMsg(t.Context(), last+uint64(i)+1)
			if err != nil {
				t.Fatal(err)
			}
			body := bytes.Replace(body, []byte(hostName), []byte(c.host), 1)
			if m.Subject != to || !bytes.Equal(m.Data, body) {
				t.Fatalf("%s: message %d is %s %q, want %q", name, i, m.Subject, m.Data, body)
			}
		}
		last += uint64(len(want))
		// The callback may run after the message has arrived.
		for until := began.Add(10 * time.Second); !lastAck.Load().After(began); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: the last ack was seen at %s, and publishing began at %s", name, lastAck.Load(), began)
			}
		}
	}
}

// TestRejectedPublishIsAnError: only stored messages are measured.
func TestRejectedPublishIsAnError(t *testing.T) {
	nc, _, _ := newShard(t)
	messages := []*nats.Msg{{Subject: "gputap.v1.ev.0.a.b.raw"},
		{Subject: "gputap.v1.ev.0.a.b.raw", Data: make([]byte, 2000)}}
	for _, window := range []int{1, 4} {
		var refused *jetstream.APIError
		if err := publishAll(t.Context(), nc, messages, window); !errors.As(err, &refused) {
			t.Errorf("%d in flight: got %v, want the error of the stream", window, err)
		}
	}
}

func TestMessagesMustContainTheHostNameOnce(t *testing.T) {
	_, js, _ := newShard(t)
	subject := schema.Subject(0, hostCluster, hostName, schema.KindCopy)
	for _, body := range []string{"nobody", hostName + hostName} {
		ack, err := js.Publish(t.Context(), subject, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		_, err = loadMessages(t.Context(), js, ack.Sequence, subject, subject, "traced-host-001")
		if err == nil || !strings.Contains(err.Error(), hostName) {
			t.Errorf("%q: got %v, want an error with the name", body, err)
		}
	}
	if _, err := loadMessages(t.Context(), js, 1, "nothing", "to", hostName); err == nil {
		t.Error("a range without messages is no error")
	}
}

func TestSummaryHasMedianAndRange(t *testing.T) {
	for want, list := range map[string][]float64{"2.0, 1.0 to 4.0": {4, 1, 2}, "1.5, 1.0 to 2.0": {2, 1}} {
		if got := summary("%.1f", list); got != want {
			t.Errorf("%v: %s, want %s", list, got, want)
		}
	}
}
