package bus

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// aheadStream has a leader that holds one message more than any replica.
type aheadStream struct{ jetstream.Stream }

func (a aheadStream) CachedInfo() *jetstream.StreamInfo {
	info := *a.Stream.CachedInfo()
	info.State.LastSeq++
	info.State.Msgs++
	return &info
}

var (
	hostOnly = Subjects(0, []schema.Kind{schema.KindHost})
	several  = Subjects(0, []schema.Kind{schema.KindMemory, schema.KindHost})
)

// TestNothingPending: for one subject and for several, where messages were removed, and where a replica is stale.
func TestNothingPending(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	expect := func(subjects []string, s jetstream.Stream, sequence uint64, want, known bool) {
		t.Helper()
		got, err := NothingPending(t.Context(), js.Conn(), s, subjects, sequence)
		if got != want || (err == nil) != known {
			t.Errorf("nothing pending after message %d: %t, %v", sequence, got, err)
		}
	}
	shard := func() jetstream.Stream { return stream(t, js, schema.StreamName(0)) }
	publish(t, js, schema.KindMemory, 2)
	expect(hostOnly, shard(), 0, true, true)
	publish(t, js, schema.KindHost, 2)
	publish(t, js, schema.KindMemory, 1)
	for sequence, want := range []bool{false, false, false, false, true, true} {
		expect(hostOnly, shard(), uint64(sequence), want, true)
		expect(several, shard(), uint64(sequence), sequence == 5, true)
	}
	expect(hostOnly, aheadStream{shard()}, 3, false, true)
	expect(hostOnly, aheadStream{shard()}, 4, false, false)
	publish(t, js, schema.KindHost, 1)
	host := schema.Subject(0, "c", "h", schema.KindHost)
	if err := shard().Purge(t.Context(), jetstream.WithPurgeSubject(host)); err != nil {
		t.Fatal(err)
	}
	for sequence := range uint64(7) { // 3, 4 and 6 are removed
		expect(hostOnly, shard(), sequence, true, true)
		expect(several, shard(), sequence, sequence >= 5, true)
	}
}

// TestNothingPendingOfManyHosts: more hosts than one answer holds.
func TestNothingPendingOfManyHosts(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	const hosts = 1500
	for n := range hosts {
		subject := schema.Subject(0, "c", fmt.Sprint("h", n), schema.KindHost)
		if _, err := js.PublishAsync(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	publish(t, js, schema.KindMemory, 1)
	s := stream(t, js, schema.StreamName(0))
	for _, tt := range []struct {
		of          jetstream.Stream
		sequence    uint64
		want, known bool
	}{{s, 0, false, true}, {s, hosts - 1, false, true}, {s, hosts, true, true}, {aheadStream{s}, hosts, false, false}} {
		got, err := NothingPending(t.Context(), js.Conn(), tt.of, hostOnly, tt.sequence)
		if got != tt.want || (err == nil) != tt.known {
			t.Errorf("nothing pending after message %d of %d: %t, %v", tt.sequence, hosts, got, err)
		}
	}
}
