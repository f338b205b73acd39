//go:build bpf

package producer

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
)

const busBytes = 4 << 30 // more than any test or benchmark publishes

// newBus is a nats-server of this process with the streams of one shard, as gputap run has it.
func newBus(t testing.TB) jetstream.JetStream {
	s, err := server.NewServer(&server.Options{
		// whatever the disk has: it is reserved, not used
		DontListen: true, JetStream: true, JetStreamMaxStore: 2 * busBytes,
		StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: busBytes}); err != nil {
		t.Fatal(err)
	}
	return js
}
