package bus

import (
	"os"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

// connectReady returns a connection to a bus that has its streams.
func connectReady(t testing.TB) jetstream.JetStream {
	t.Helper()
	js := bustest.Connect(t)
	if err := EnsureStreams(t.Context(), js, StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	return js
}

func reshard(t testing.TB, js jetstream.JetStream, shards int) schema.Topology {
	t.Helper()
	if err := EnsureStreams(t.Context(), js, StreamOptions{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	return topologyOf(t, js)
}

func topologyOf(t testing.TB, js jetstream.JetStream) schema.Topology {
	t.Helper()
	topology, err := ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func info(t testing.TB, js jetstream.JetStream, name string) *jetstream.StreamInfo {
	t.Helper()
	return stream(t, js, name).CachedInfo()
}

func stream(t testing.TB, js jetstream.JetStream, name string) jetstream.Stream {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// expectNothingToDo checks that a second call finds nothing to change.
func expectNothingToDo(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	plan, err := PlanStreams(t.Context(), js, StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range plan.Steps {
		t.Errorf("left to do: %s %s, %s", step.Action, step.Name, step.Detail)
	}
}

// publish publishes n messages of host h and that kind to shard 0. This package does not read their contents.
func publish(t testing.TB, js jetstream.JetStream, kind schema.Kind, n int) {
	t.Helper()
	for range n {
		if _, err := js.Publish(t.Context(), schema.Subject(0, "c", "h", kind), []byte("batch")); err != nil {
			t.Fatal(err)
		}
	}
}
