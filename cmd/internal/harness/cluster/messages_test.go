package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func newStream(t *testing.T) (*server.Server, jetstream.JetStream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server did not start")
	}
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	config := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, Storage: jetstream.MemoryStorage}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return s, js
}

// TestReadingEndsWithItsContext: a reader whose server is gone ends when its context does.
func TestReadingEndsWithItsContext(t *testing.T) {
	s, js := newStream(t)
	ctx, cancel := context.WithCancel(t.Context())
	for range 20 { // more bytes than one pull asks for
		if _, err := js.Publish(ctx, "s.a", make([]byte, 900<<10)); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- EveryMessage(ctx, js, "S", func(jetstream.Msg) error {
			s.Shutdown()
			cancel()
			return nil
		})
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("reading ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the reader has not ended")
	}
}

func TestConfigSelectsSequencesAndSubject(t *testing.T) {
	_, js := newStream(t)
	for i := range 10 {
		if _, err := js.Publish(t.Context(), []string{"s.a", "s.b"}[i%2], nil); err != nil {
			t.Fatal(err)
		}
	}
	type config = jetstream.OrderedConsumerConfig
	for _, row := range []struct {
		selected config
		want     []uint64
	}{
		{config{}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{config{FilterSubjects: []string{"s.b"}}, []uint64{2, 4, 6, 8, 10}},
		{config{
			FilterSubjects: []string{"s.a"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 2,
		}, []uint64{3, 5, 7, 9}},
		{config{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 9}, []uint64{9, 10}},
		{config{FilterSubjects: []string{"s.c"}}, nil},
	} {
		var got []uint64
		if err := EachMessage(t.Context(), js, "S", row.selected, func(m jetstream.Msg) error {
			meta, err := m.Metadata()
			got = append(got, meta.Sequence.Stream)
			return err
		}); err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%+v: read %d, %v, want %d", row.selected, got, err, row.want)
		}
	}
}

func TestWholeStreamMustHoldItsFirstMessage(t *testing.T) {
	_, js := newStream(t)
	if _, err := js.Publish(t.Context(), "s.a", nil); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "S")
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := EveryMessage(t.Context(), js, "S", func(jetstream.Msg) error { return nil }); err == nil {
		t.Error("a stream without its first message was read")
	}
}
