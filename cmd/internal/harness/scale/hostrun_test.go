package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// newShard starts a nats-server in this process, with the stream of shard 0.
func newShard(t *testing.T) (url string, s jetstream.Stream) {
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
	js := connectAs(t, srv.ClientURL(), inbox+".raw", 4)
	s, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: schema.StreamName(0), Subjects: []string{schema.ShardSubjects(0)}, MaxMsgSize: 1000, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return srv.ClientURL(), s
}

func connectAs(t *testing.T, url, prefix string, window int) jetstream.JetStream {
	nc, err := nats.Connect(url, nats.CustomInboxPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// TestPublishersStoreTheSameBytes: a raw publisher stores the messages of one subject, as those of another host.
// Deleted messages are skipped, and the acks of all of them are seen.
func TestPublishersStoreTheSameBytes(t *testing.T) {
	url, s := newShard(t)
	js := connectAs(t, url, inbox+".raw", 4)
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
	watch, err := watchAcks(url, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.nc.Close()
	for name, c := range map[string]struct {
		host string
		send func(context.Context, jetstream.JetStream, []*nats.Msg) (uint64, error)
	}{
		"one by one":     {hostName, oneByOne},
		"many in flight": {"traced-host-007", manyInFlight},
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(schema.Subject(0, hostCluster, "to",
				schema.KindLaunch))); err != nil {
				t.Fatal(err)
			}
			to := schema.Subject(0, hostCluster, "to", schema.KindLaunch)
			messages, err := loadMessages(t.Context(), url, cluster.Range{
				Stream: schema.StreamName(0), First: 1, Last: 2 * count, Subject: from,
			}, to, c.host)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			last, err := c.send(t.Context(), js, messages)
			if err != nil {
				t.Fatal(err)
			}
			for seq := last - count + 2; seq <= last; seq++ {
				m, err := s.GetMsg(t.Context(), seq)
				if err != nil {
					t.Fatal(err)
				}
				body := bytes.Replace(want[seq-(last-count+2)], []byte(hostName), []byte(c.host), 1)
				if m.Subject != to || !bytes.Equal(m.Data, body) {
					t.Fatalf("message %d is %s %q, want %q", seq, m.Subject, m.Data, body)
				}
				if at, err := watch.of(t.Context(), seq); err != nil || at.Before(began) {
					t.Fatalf("message %d was acked at %s, %v, and publishing began at %s", seq, at, err, began)
				}
			}
			if info, err := s.Info(t.Context()); err != nil || info.State.LastSeq != last {
				t.Fatalf("the publisher reports %d as the last message of %+v, %v", last, info.State, err)
			}
		})
	}
}

// TestRejectedPublishIsAnError: only stored messages are measured.
func TestRejectedPublishIsAnError(t *testing.T) {
	url, _ := newShard(t)
	js := connectAs(t, url, inbox+".raw", 4)
	messages := []*nats.Msg{{Subject: "gputap.v1.ev.0.a.b.raw"},
		{Subject: "gputap.v1.ev.0.a.b.raw", Data: make([]byte, 2000)}}
	for name, send := range map[string]func(context.Context, jetstream.JetStream, []*nats.Msg) (uint64, error){
		"one by one": oneByOne, "many in flight": manyInFlight,
	} {
		var refused *jetstream.APIError
		if _, err := send(t.Context(), js, messages); !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want the error of the stream", name, err)
		}
	}
}

func TestMessagesMustContainTheHostNameOnce(t *testing.T) {
	url, _ := newShard(t)
	js := connectAs(t, url, inbox+".raw", 4)
	for _, body := range []string{"nobody", hostName + hostName} {
		subject := schema.Subject(0, hostCluster, hostName, schema.KindCopy)
		ack, err := js.Publish(t.Context(), subject, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r := cluster.Range{Stream: schema.StreamName(0), First: ack.Sequence, Last: ack.Sequence, Subject: subject}
		_, err = loadMessages(t.Context(), url, r, subject, "traced-host-001")
		if err == nil || !strings.Contains(err.Error(), hostName) {
			t.Errorf("%q: got %v, want an error with the name", body, err)
		}
	}
	r := cluster.Range{Stream: schema.StreamName(0), First: 1, Last: 2, Subject: "nothing"}
	if _, err := loadMessages(t.Context(), url, r, "to", hostName); err == nil {
		t.Error("a range without messages is no error")
	}
}

func TestReadHostCounters(t *testing.T) {
	const page = `# HELP gputap_producer_events_total Events read from the rings, by what the call did.
gputap_producer_events_total{op="alloc"} 7
gputap_producer_events_total{op="free"} 1e+06
gputap_producer_events_total{op="free_async"} 5
gputap_producer_events_lost_total{reason="bulk_ring"} 2
gputap_producer_events_lost_total{reason="spool"} 3
gputap_producer_batches_total{result="acked"} 11
gputap_producer_batches_total{result="error"} 13
gputap_producer_published_bytes_total 17
gputap_producer_spool_batches 19
gputap_producer_attached_probes 23
gputap_producer_batch_events_bucket{le="1"} 29
go_goroutines 31
`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte(page))
	}))
	defer server.Close()
	c, err := readHostCounters(server.URL, []schema.Op{schema.OpAlloc, schema.OpFree})
	want := hostCounters{called: 1_000_007, events: 1_000_012, lost: 5, batches: 11, errors: 13, waiting: 19, bytes: 17,
		probes: 23}
	if err != nil || c != want {
		t.Fatalf("got %+v, %v, want %+v", c, err, want)
	}
}

// TestConcludeHostRun: medians per publisher, and ratios of passes of the same round.
func TestConcludeHostRun(t *testing.T) {
	r := hostResult{}
	for round, took := range [][2]float64{{1, 2}, {2, 1}, {4, 4}} {
		r.Passes = append(r.Passes,
			pass{Round: round, Window: manyAcks, Took: took[1], Events: 8e6, Messages: 4, Bytes: 80,
				use: use{CPU: []float64{8}}},
			pass{Round: round, Took: took[0], Events: 8e6, Messages: 8, Bytes: 80,
				use: use{NodeCPU: [nodes]float64{8, 8, float64(8 * round)}}})
	}
	r.conclude()
	if len(r.Medians) != 2 {
		t.Fatalf("got %+v", r.Medians)
	}
	producer, raw := r.Medians[0], r.Medians[1]
	if producer.EventsPerSecond != 4e6 || producer.MessageEvents != 1e6 || producer.NodesCPU != 3 ||
		producer.Ratio != 1 {
		t.Errorf("producer: %+v", producer)
	}
	if raw.EventsPerSecond != 4e6 || raw.MessageBytes != 20 || raw.CPU != 1 || !slices.Equal(raw.Ratios,
		[]float64{2, 0.5, 1}) {
		t.Errorf("raw publisher: %+v", raw)
	}
	r = hostResult{}
	r.conclude() // the run ended early
	if r.Medians != nil {
		t.Errorf("medians without passes: %+v", r.Medians)
	}
}
