package bus

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

func TestNothingPending(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	shard := func() jetstream.Stream { return stream(t, js, schema.StreamName(0)) }
	expect := func(sequence uint64, want bool) {
		t.Helper()
		if got, err := NothingPending(t.Context(), shard(), sequence); err != nil || got != want {
			t.Errorf("nothing pending after message %d: %t, %v", sequence, got, err)
		}
	}
	expect(0, true)
	publish(t, js, schema.KindMemory, 2)
	publish(t, js, schema.KindHost, 2)
	publish(t, js, schema.KindMemory, 1)
	for sequence := range uint64(6) {
		expect(sequence, sequence == 5)
	}
	publish(t, js, schema.KindHost, 1)
	host := schema.Subject(0, "c", "h", schema.KindHost)
	if err := shard().Purge(t.Context(), jetstream.WithPurgeSubject(host)); err != nil {
		t.Fatal(err)
	}
	for sequence := range uint64(7) { // 3, 4 and 6 are removed
		expect(sequence, sequence >= 5)
	}
}
