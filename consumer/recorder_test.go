package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

// connectReady returns a connection to a bus that has its streams.
func connectReady(t testing.TB) jetstream.JetStream {
	t.Helper()
	js := bustest.Connect(t)
	ensure(t, js)
	return js
}

func ensure(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{}); err != nil {
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
			Time: schema.KTime(h.Seq), Thread: b.Thread(schema.Thread{Process: p,
				TID: 1}), Call: b.Call(schema.Calls[2].Ref()),
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

// retry is the pause after failures in tests.
const retry = 20 * time.Millisecond

func start(t testing.TB, js jetstream.JetStream, fold Fold, opts ReaderOptions) (c *Reader, stop func()) {
	if opts.Retry == 0 {
		opts.Retry = retry
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.WaitFor(ctx, sequence); err != nil {
		t.Fatal(err)
	}
}

// recorder is a fold that records its batches.
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

func info(t testing.TB, js jetstream.JetStream, name string) *jetstream.StreamInfo {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s.CachedInfo()
}

func reshard(t testing.TB, js jetstream.JetStream, shards int) schema.Topology {
	t.Helper()
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	return topologyOf(t, js)
}

func topologyOf(t testing.TB, js jetstream.JetStream) schema.Topology {
	t.Helper()
	topology, err := bus.ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	bustest.Eventually(t, what, ok)
}
