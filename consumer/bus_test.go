package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// bus is a nats-server of this process with a store and a port, so that it can be stopped and
// started.
type bus struct {
	t      testing.TB
	dir    string
	port   int
	server *server.Server
}

func newBus(t testing.TB) *bus {
	b := &bus{t: t, dir: t.TempDir(), port: -1}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *bus) start() {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		b.t.Fatal("nats-server does not start")
	}
	b.server = s
	_, _ = fmt.Sscanf(s.Addr().String(), "127.0.0.1:%d", &b.port)
}

func (b *bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func (b *bus) connect() jetstream.JetStream {
	b.t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", b.port), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// connectReady is a client of a new server that has the streams.
func connectReady(t testing.TB) jetstream.JetStream {
	t.Helper()
	js := newBus(t).connect()
	ensure(t, js)
	return js
}

func ensure(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	if err := EnsureStreams(t.Context(), js, StreamOptions{}); err != nil {
		t.Fatal(err)
	}
}

// message is a batch of one event, or a heartbeat, of host h.
func message(run, seq uint64, kind schema.Kind) []byte {
	return encode(kind, schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: run, Seq: seq})
}

func memory(seq uint64) []byte { return message(1, seq, schema.KindMemory) }

func encode(kind schema.Kind, h schema.Header) []byte {
	b := schema.NewBuilder(kind)
	if kind == schema.KindMemory {
		p := b.Process(schema.Process{PID: 1, Start: 1, Comm: "p"})
		b.AddMemory(&schema.Memory{
			Time: schema.KTime(h.Seq), Thread: b.Thread(schema.Thread{Process: p, TID: 1}), Call: b.Call(schema.Calls[2].Ref()),
		})
	}
	return slices.Clone(b.Encode(&h))
}

func publish(t testing.TB, js jetstream.JetStream, kind schema.Kind, data []byte) uint64 {
	t.Helper()
	ack, err := js.Publish(t.Context(), schema.Subject(0, "c", "h", kind), data)
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// publishMemory publishes the memory batches of one run with these seqs, in this order.
func publishMemory(t testing.TB, js jetstream.JetStream, seqs ...uint64) (last uint64) {
	t.Helper()
	for _, seq := range seqs {
		last = publish(t, js, schema.KindMemory, memory(seq))
	}
	return last
}

// start runs a consumer until the test ends or stop is called.
func start(t testing.TB, js jetstream.JetStream, fold Fold, opts ReaderOptions) (c *Reader, stop func()) {
	c = NewReader(opts, js, fold, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return c, stop
}

func wait(t testing.TB, c *Reader, sequence uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.WaitFor(ctx, sequence); err != nil {
		t.Fatal(err)
	}
}

// recorder is a fold that writes down what it was given.
type recorder struct {
	poison uint64        // seq that it panics over
	refuse uint64        // seq that it returns an error for
	hold   chan struct{} // when set, Apply takes a value from it first
	until  chan struct{} // when set, closed at seq last
	last   uint64

	mu         sync.Mutex
	seqs       []uint64
	heartbeats int
	lost       uint64
}

func (r *recorder) Name() string         { return "recorder" }
func (r *recorder) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory} }

func (r *recorder) Apply(b *schema.Batch) error {
	if r.hold != nil {
		<-r.hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case b.Kind == schema.KindHost:
		r.heartbeats++
		return nil
	case b.Seq == r.poison:
		panic("poison")
	case b.Seq == r.refuse:
		return fmt.Errorf("refused")
	}
	r.seqs = append(r.seqs, b.Seq)
	if r.until != nil && b.Seq == r.last {
		close(r.until)
	}
	return nil
}

func (r *recorder) Lost(_, _, _ string, batches uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += batches
}

func (r *recorder) seen() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seqs)
}

func (r *recorder) toldLost() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

func upTo(n uint64) (seqs []uint64) {
	for seq := range n {
		seqs = append(seqs, seq+1)
	}
	return seqs
}

func expect(t testing.TB, fold *recorder, want ...uint64) {
	t.Helper()
	if got := fold.seen(); !slices.Equal(got, want) {
		t.Errorf("applied %v, want %v", got, want)
	}
}
