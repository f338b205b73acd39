package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// past is a start long ago, so that all batches are due at once.
var past = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bus is an in-process nats-server that can be stopped and started.
type bus struct {
	t      testing.TB
	dir    string
	port   int
	server *server.Server
}

func newBus(t testing.TB, shards int) *bus {
	b := &bus{t: t, dir: t.TempDir(), port: bustest.Port(t)}
	b.start()
	t.Cleanup(func() { b.stop() })
	if err := eventbus.EnsureStreams(t.Context(), b.js(), eventbus.StreamOptions{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bus) start() {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		b.t.Fatal("nats-server did not start")
	}
	b.server = s
}

func (b *bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func (b *bus) conns(n int) (all []*nats.Conn) {
	b.t.Helper()
	for range n {
		nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", b.port), nats.MaxReconnects(-1),
			nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(nc.Close)
		all = append(all, nc)
	}
	return all
}

func (b *bus) js() jetstream.JetStream {
	b.t.Helper()
	js, err := jetstream.New(b.conns(1)[0])
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// setTopology writes the topology into its bucket.
func (b *bus) setTopology(js jetstream.JetStream, text string) {
	b.t.Helper()
	bucket, err := js.CreateOrUpdateKeyValue(b.t.Context(), jetstream.KeyValueConfig{Bucket: schema.MetaBucket})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := bucket.Put(b.t.Context(), schema.TopologyKey, []byte(text)); err != nil {
		b.t.Fatal(err)
	}
}

// stored returns every message of a shard, in order.
func (b *bus) stored(js jetstream.JetStream, shard int) (all []stored) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	s, err := js.Stream(ctx, schema.StreamName(shard))
	if err != nil {
		b.t.Fatal(err)
	}
	reader, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.t.Fatal(err)
	}
	for want := s.CachedInfo().State.Msgs; uint64(len(all)) < want; {
		m, err := reader.Next(jetstream.FetchMaxWait(5 * time.Second))
		if err != nil {
			b.t.Fatalf("after %d of %d messages: %v", len(all), want, err)
		}
		all = append(all, stored{m.Subject(), m.Data()})
	}
	return all
}

type stored struct {
	subject string
	data    []byte
}

// start runs a simulation. wait waits for its end.
func start(t testing.TB, o Options) (s *Simulator, wait func()) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		t.Helper()
		defer cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen within a minute", what)
		}
	}
}

// logged reads a whole log.
func logged(t testing.TB, path string) (all []Entry) {
	t.Helper()
	for e, err := range ReadLog(path) {
		if err != nil {
			t.Fatal(err)
		}
		e.Data = append([]byte(nil), e.Data...)
		all = append(all, e)
	}
	return all
}

// small returns the options of a fleet with three lives per host.
func small(t testing.TB, b *bus) Options {
	t.Helper()
	return Options{
		Conns: b.conns(2), Cluster: "sim", Hosts: 6, Rate: 18_000, Duration: 22 * time.Second, Start: past, Seed: 1,
		BatchAge: time.Second, LogPath: filepath.Join(t.TempDir(), "truth.log"), Drain: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
}

func TestTopologyIsReadFromItsBucket(t *testing.T) {
	t.Parallel()
	b := newBus(t, 1)
	js := b.js()
	shards := &shards{js: js}
	read := func() (*schema.Topology, error) {
		err := shards.read(t.Context())
		return shards.current.Load(), err
	}
	if got, err := read(); err != nil || got.Shards != 1 || got.First != 0 || got.Generation != 1 {
		t.Errorf("without the bucket it is %+v, %v", got, err)
	}
	b.setTopology(js, `{"generation":2,"first":1,"shards":3}`)
	if got, err := read(); err != nil || got.Shards != 3 || got.First != 1 {
		t.Errorf("read %+v, %v", got, err)
	}
	b.setTopology(js, `{"generation":0}`)
	if _, err := read(); err == nil {
		t.Error("an invalid topology was accepted")
	}
	s, err := New(small(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("a simulation ran without a topology")
	}
}

// TestHostsMoveToTheNewTopology starts with shards that have no stream.
func TestHostsMoveToTheNewTopology(t *testing.T) {
	t.Parallel()
	b := newBus(t, 1)
	js := b.js()
	b.setTopology(js, `{"generation":1,"first":5,"shards":2}`)
	s, wait := start(t, small(t, b))
	eventually(t, "a publish is tried again", func() bool { return s.Stats().Retries > 0 })
	if acked := s.Stats().AckedBatches; acked != 0 {
		t.Errorf("%d batches were acked without a stream", acked)
	}
	b.setTopology(js, `{"generation":2,"first":0,"shards":1}`)
	wait()
	if got := s.Stats(); got.UnackedBatches != 0 || got.AckedBatches == 0 {
		t.Errorf("%+v", got)
	}
}

// TestServerRestartsLoseNothing restarts NATS three times. In the end every batch is stored in order.
func TestServerRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	b := newBus(t, 1)
	o := small(t, b)
	o.Duration = 0 // the simulation ends with its context
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for range 3 {
		before := s.Stats().AckedBatches
		eventually(t, "batches are acked", func() bool { return s.Stats().AckedBatches > before+20 })
		retries := s.Stats().Retries
		b.stop()
		b.start()
		eventually(t, "batches are tried again", func() bool { return s.Stats().Retries > retries })
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.UnackedBatches != 0 || got.KeptUp {
		t.Errorf("%+v", got)
	}
	check(t, logged(t, o.LogPath), b.stored(b.js(), 0))
}

// TestContextEndStopsMakingBatches expects an ack for every batch that was made before the end.
func TestContextEndStopsMakingBatches(t *testing.T) {
	t.Parallel()
	b := newBus(t, 1)
	o := small(t, b)
	o.Start, o.Duration = time.Time{}, 0
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	eventually(t, "something is made", func() bool { return s.Stats().Events > 0 })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.UnackedBatches != 0 || got.Batches != uint64(len(b.stored(b.js(), 0))) {
		t.Errorf("%+v", got)
	}
}

// TestUnackedBatchesAreCounted ends a simulation whose shard has no stream.
func TestUnackedBatchesAreCounted(t *testing.T) {
	t.Parallel()
	b := newBus(t, 1)
	b.setTopology(b.js(), `{"generation":1,"first":7,"shards":1}`)
	o := small(t, b)
	o.Drain = time.Millisecond
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	eventually(t, "a publish is tried again", func() bool { return s.Stats().Retries > 0 })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := s.Stats()
	if got.UnackedBatches == 0 || got.UnackedBatches != got.Batches || got.UnackedEvents != got.Events || got.KeptUp {
		t.Errorf("%+v", got)
	}
}

// TestTooLargeBatchEndsSimulation expects an error, because a retry cannot help.
func TestTooLargeBatchEndsSimulation(t *testing.T) {
	t.Parallel()
	b := newBus(t, 1)
	js := b.js()
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	limited := s.CachedInfo().Config
	limited.MaxMsgSize = 600
	if _, err := js.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	simulator, err := New(small(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if err := simulator.Run(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestRecoveryIsLoggedWhenAllShardsRecover removes one of two streams for a while.
func TestRecoveryIsLoggedWhenAllShardsRecover(t *testing.T) {
	t.Parallel()
	b := newBus(t, 2)
	js := b.js()
	b.setTopology(js, `{"generation":1,"first":0,"shards":2}`)
	s, err := js.Stream(t.Context(), schema.StreamName(1))
	if err != nil {
		t.Fatal(err)
	}
	half := s.CachedInfo().Config
	if err := js.DeleteStream(t.Context(), half.Name); err != nil {
		t.Fatal(err)
	}
	o := small(t, b)
	lines := make(notes, 1000)
	o.Conns, o.Log = o.Conns[:1], slog.New(slog.NewTextHandler(lines, nil))
	simulator, wait := start(t, o)
	eventually(t, "a part is acked and a part is tried again", func() bool {
		now := simulator.Stats()
		return now.Retries > 20 && now.AckedBatches > 20
	})
	if n := len(lines); n != 1 {
		t.Errorf("%d lines while one shard is unreachable, want 1", n)
	}
	if _, err := js.CreateStream(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	wait()
	close(lines)
	text := ""
	for line := range lines {
		text += line
	}
	if strings.Count(text, "publish failed") != 1 || strings.Count(text, "publishing again") != 1 ||
		strings.Index(text, "publish failed") > strings.Index(text, "publishing again") {
		t.Errorf("log\n%s", text)
	}
	if got := simulator.Stats(); got.UnackedBatches != 0 {
		t.Errorf("%+v", got)
	}
}

// notes collects log lines.
type notes chan string

func (n notes) Write(line []byte) (int, error) {
	n <- string(line)
	return len(line), nil
}
