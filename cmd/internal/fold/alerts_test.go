package fold

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

func TestAlertIsStoredOnce(t *testing.T) {
	js := bustest.Connect(t)
	a := NewAlerts(js, "anomaly", slog.New(slog.DiscardHandler))
	a.patience = 0
	one := alert.Alert{
		ID: "a1", State: alert.Firing, Rule: "oom", Severity: alert.Critical, Cluster: "c", Host: "gpu.1", PID: 7,
		Comm: "python3", Time: time.Unix(1, 0).UTC(), Evidence: alert.Evidence{Host: "gpu.1", Boot: "b", Seq: 3},
	}
	a.Publish(t.Context(), one) // the stream does not exist yet
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	a.Publish(t.Context(), one)
	a.Publish(t.Context(), one) // as after a restart
	one.State = alert.Cleared
	a.Publish(t.Context(), one)
	for result, want := range map[string]float64{"unstored": 1, "stored": 2, "known": 1, "failed": 0} {
		if got := testutil.ToFloat64(a.WithLabelValues("nats", result)); got != want {
			t.Errorf("%s: %v, want %v", result, got, want)
		}
	}
	s, err := js.Stream(t.Context(), schema.OutStream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), "gputap.v1.out.alert.anomaly.c.gpu_1")
	if err != nil {
		t.Fatal(err)
	}
	var got alert.Alert
	if err := json.Unmarshal(m.Data, &got); err != nil || got != one || m.Sequence != 2 {
		t.Errorf("stored %s as message %d, %v", m.Data, m.Sequence, err)
	}
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "a1/cleared", "ce-type": "gputap.alert.cleared", "ce-subject": "oom/7",
		"ce-source": "/gputap/anomaly/c/gpu_1", "ce-time": "1970-01-01T00:00:01Z", "content-type": "application/json",
		"Nats-Msg-Id": "a1/cleared",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
}

// The first alert waits for NATS. Later alerts do not wait until NATS has stored one again.
func TestFirstAlertWaitsForNATS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &unavailableJetStream{until: time.Now().Add(alertPatience / 2)}
		a := NewAlerts(bus, "anomaly", slog.New(slog.DiscardHandler))
		count := func(result string) float64 { return testutil.ToFloat64(a.WithLabelValues("nats", result)) }
		a.Publish(t.Context(), alert.Alert{PID: 1})
		if count("stored") != 1 || time.Now().Before(bus.until) {
			t.Errorf("after a short outage %v alerts are stored, want 1", count("stored"))
		}
		bus.until = time.Now().Add(time.Hour)
		began := time.Now()
		a.Publish(t.Context(), alert.Alert{PID: 2})
		if took := time.Since(began); count("unstored") != 1 || took < alertPatience || took > 2*alertPatience {
			t.Errorf("%v alerts were given up after %s, want 1", count("unstored"), took)
		}
		began = time.Now()
		a.Publish(t.Context(), alert.Alert{PID: 3})
		if took := time.Since(began); count("unstored") != 2 || took != 0 {
			t.Errorf("%v alerts were given up, the last one after %s; want 2 and 0s", count("unstored"), took)
		}
		bus.until = time.Now()
		a.Publish(t.Context(), alert.Alert{PID: 4})
		bus.until = time.Now().Add(time.Second)
		a.Publish(t.Context(), alert.Alert{PID: 5})
		if count("stored") != 3 {
			t.Errorf("%v alerts are stored after the outage, want 3", count("stored"))
		}
	})
}

// unavailableJetStream stores nothing before a given time.
type unavailableJetStream struct {
	jetstream.JetStream
	until time.Time
}

func (b *unavailableJetStream) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck,
	error) {
	if time.Now().Before(b.until) {
		return nil, jetstream.ErrNoStreamResponse
	}
	return &jetstream.PubAck{}, nil
}
