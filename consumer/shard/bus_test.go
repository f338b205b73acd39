package shard

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

const ttl = time.Second // of leases

// connectReady returns a connection to a bus of so many shards.
func connectReady(t testing.TB, shards int) jetstream.JetStream {
	t.Helper()
	js := bustest.Connect(t)
	setUp(t, js, shards)
	return js
}

func setUp(t testing.TB, js jetstream.JetStream, shards int) {
	t.Helper()
	o := bus.StreamOptions{Shards: shards, MaxBytes: int64(shards) << 26, Lease: ttl}
	if err := bus.EnsureStreams(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
}

func reshard(t testing.TB, js jetstream.JetStream, shards int) schema.Topology {
	t.Helper()
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	topology, err := bus.ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func info(t testing.TB, js jetstream.JetStream, name string) *jetstream.StreamInfo {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s.CachedInfo()
}

// newStore is the store of a fold in shard 0.
func newStore(js jetstream.JetStream) *store { return &store{js: js, fold: "chain", shard: 0} }

func mustClaim(t testing.TB, c *store, owner string) manifest {
	t.Helper()
	m, err := c.claim(t.Context(), owner, false)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustCommit(t testing.TB, c *store, m *manifest, state string) {
	t.Helper()
	if err := c.commit(t.Context(), m, *m, []byte(state)); err != nil {
		t.Fatal(err)
	}
}

// newest is the state of the newest manifest.
func newest(t testing.TB, c *store) string {
	t.Helper()
	m, err := c.latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state, err := c.load(t.Context(), &m, 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(state)
}

// fakeReader has a state that nothing changes.
type fakeReader struct {
	mu    sync.Mutex // held by a step
	state []byte
	at    bus.Position
	takes time.Duration // to copy the state
	saves int
}

func (f *fakeReader) Save(w *snapshot.Writer) (bus.Position, time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	began := time.Now()
	f.saves++
	time.Sleep(f.takes)
	w.Bytes(f.state)
	return f.at, time.Since(began), nil
}

func (f *fakeReader) Restore([]byte, func(cluster, host string) bool) error { return nil }
func (f *fakeReader) Resume(bus.Position)                                   {}
func (f *fakeReader) Inherit(bool)                                          {}
func (f *fakeReader) Run(ctx context.Context) error                         { <-ctx.Done(); return nil }
func (f *fakeReader) Position() bus.Position                                { return f.at }
func (f *fakeReader) Applied() uint64                                       { return f.at.Sequence }

// logBuffer is a log of several goroutines.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte(text))
}
