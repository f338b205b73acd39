package shard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

func publish(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for range n {
		if _, err := js.Publish(t.Context(), schema.Subject(0, "c", "h", schema.KindMemory),
			[]byte("batch")); err != nil {
			t.Fatal(err)
		}
	}
}

// staleJS answers requests for a message of shard 0 like a replica that has nothing of the stream's end yet.
type staleJS struct{ jetstream.JetStream }

func (s staleJS) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := s.JetStream.Stream(ctx, name)
	if err != nil || name != schema.StreamName(0) {
		return stream, err
	}
	return staleStream{stream}, nil
}

type staleStream struct{ jetstream.Stream }

func (staleStream) GetMsg(context.Context, uint64, ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	return nil, jetstream.ErrMsgNotFound
}

// TestDrained: a shard is drained when it is closed and its checkpoint covers it, whatever a stale replica says.
func TestDrained(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	publish(t, js, 20)
	open, _, err := drained(t.Context(), js, 0, bus.Position{Sequence: 20})
	if err != nil || open {
		t.Errorf("an open shard: drained %t, %v", open, err)
	}
	reshard(t, js, 2)
	for sequence, want := range map[uint64]bool{0: false, 19: false, 20: true} {
		done, jsStream, err := drained(t.Context(), staleJS{js}, 0, bus.Position{Sequence: sequence})
		if err != nil || done != want || jsStream == nil {
			t.Errorf("after message %d of 20: drained %t, gone %t, %v", sequence, done, jsStream == nil, err)
		}
	}
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.GetMsg(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	at := bus.Position{Sequence: 20, Stored: last.Time, Created: s.CachedInfo().Created}
	if done, _, err := drained(t.Context(), js, 0, at); err != nil || !done {
		t.Errorf("its own end: drained %t, %v", done, err)
	}
	at.Stored = at.Stored.Add(time.Second)
	if done, _, err := drained(t.Context(), js, 0, at); err != nil || done {
		t.Errorf("another end: drained %t, %v", done, err)
	}
	if err := js.DeleteStream(t.Context(), schema.StreamName(0)); err != nil {
		t.Fatal(err)
	}
	if done, jsStream, err := drained(t.Context(), js, 0, at); err != nil || !done || jsStream != nil {
		t.Errorf("a stream that does not exist: drained %t, %v, %v", done, jsStream, err)
	}
}

// silentJS does not answer requests about states.
type silentJS struct{ jetstream.JetStream }

func (s silentJS) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := s.JetStream.Stream(ctx, name)
	return silentStream{stream}, err
}

type silentStream struct{ jetstream.Stream }

func (silentStream) GetLastMsgForSubject(ctx context.Context, _ string) (*jetstream.RawStreamMsg, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTakenOverNeedsAnAnswer checks that a missing answer is an error.
func TestTakenOverNeedsAnAnswer(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	c := newStore(js)
	m := mustClaim(t, c, "one")
	mustCommit(t, c, &m, "state")
	topology := reshard(t, js, 40)
	if done, err := takenOver(t.Context(), js, "chain", &topology, bus.RequestTimeout); done || err != nil {
		t.Errorf("nothing is saved: taken over %t, %v", done, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if done, err := takenOver(ctx, silentJS{js}, "chain", &topology, bus.RequestTimeout); done || err == nil {
		t.Errorf("without an answer: taken over %t, %v", done, err)
	}
	err := checkTakenOver(ctx, silentJS{js}, &topology.Previous[0], &topology)
	if err == nil || strings.Contains(err.Error(), "rm --fold") {
		t.Errorf("without an answer: %v", err)
	}
	for _, shard := range topology.Numbers() {
		c := &store{js: js, fold: "chain", shard: shard}
		m := mustClaim(t, c, "one")
		mustCommit(t, c, &m, fmt.Sprint("state ", shard))
	}
	if done, err := takenOver(t.Context(), js, "chain", &topology, bus.RequestTimeout); !done || err != nil {
		t.Errorf("all is saved: taken over %t, %v", done, err)
	}
	if err := checkTakenOver(t.Context(), js, &topology.Previous[0], &topology); err != nil {
		t.Error(err)
	}
}

// inheritor records the hosts that it should restore.
type inheritor struct {
	fakeReader
	hosts func(cluster, host string) bool
}

func (i *inheritor) Restore(_ []byte, hosts func(cluster, host string) bool) error {
	i.hosts = hosts
	return nil
}

// TestShardInheritsOnlyItsHosts: the hosts of the other new shards, and misplaced hosts, are left out.
func TestShardInheritsOnlyItsHosts(t *testing.T) {
	t.Parallel()
	js := connectReady(t, 1)
	c := newStore(js)
	m := mustClaim(t, c, "one")
	mustCommit(t, c, &m, "state")
	topology := reshard(t, js, 2)
	for _, shard := range topology.Numbers() {
		o := &owner{
			shard: shard, topology: topology, opts: &Options{Fold: "chain"},
			leases:    &leases{ttl: ttl},
			restoring: make(chan struct{}, 1), checkpointer: checkpointer{store: store{js: js, fold: "chain",
				shard: shard}},
		}
		var reader inheritor
		if has, err := o.inherit(t.Context(), &reader); !has || err != nil {
			t.Fatalf("shard %d inherits: %t, %v", shard, has, err)
		}
		for n := range 20 {
			host := fmt.Sprint("h", n)
			if got, want := reader.hosts("c", host), topology.Shard("c", host) == shard; got != want {
				t.Errorf("shard %d inherits %s: %t, want %t", shard, host, got, want)
			}
		}
	}
}
