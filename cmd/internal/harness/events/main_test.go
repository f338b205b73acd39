package main

import (
	"log/slog"
	"testing"

	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/config"
	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestReadReturnsTheEventsOfAllShards: streams without events are left out.
func TestReadReturnsTheEventsOfAllShards(t *testing.T) {
	server, err := embedded.Start(t.TempDir(), config.Embedded{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	nc, js, err := server.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := eventbus.EnsureStreams(t.Context(), js,
		eventbus.StreamOptions{Shards: 2, MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	for shard := range 2 {
		host := consumertest.Memory(t, "gpu-1")
		host.Process(7, 1, "python3").Alloc(7, 0x1000, 70<<20, 100, 5)
		if _, err := js.Publish(t.Context(), schema.Subject(shard, "test", "gpu-1", schema.KindMemory),
			host.Message()); err != nil {
			t.Fatal(err)
		}
	}
	events, err := read(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 || events[0].PID != 7 || events[1].Bytes != 70<<20 {
		t.Errorf("read %+v", events)
	}
}
