//go:build bpf

package demo

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/stub"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/producer"
	"github.com/gputap/gputap/schema"
)

const outage = 20 * time.Second

// ordered is the leak fold. It also records batches that are out of order.
type ordered struct {
	*leak.Tracker

	mu   sync.Mutex
	last uint64
	bad  []string
}

func (o *ordered) Apply(b *schema.Batch) error {
	if b.Kind == schema.KindMemory {
		o.mu.Lock()
		if b.Seq != o.last+1 {
			o.bad = append(o.bad, fmt.Sprintf("seq %d after %d", b.Seq, o.last))
		}
		o.last = b.Seq
		o.mu.Unlock()
	}
	return o.Tracker.Apply(b)
}

// TestOutageLosesNothing stops NATS for 20 s while a program makes 20,000 calls/s. No event is lost, the order is kept,
// and the fold's totals are equal to the stub's.
func TestOutageLosesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatal("GPUTAP_REQUIRE_BPF is set and this is not root")
		}
		t.Skip("uprobes need root")
	}
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	library, workloadPath := filepath.Join(bin, "stub", "libcuda.so.1"), filepath.Join(bin, "workload")
	dir, port := t.TempDir(), bustest.Port(t)
	start := func() *server.Server {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir,
			NoSigs: true, NoLog: true})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("nats-server does not start")
		}
		return s
	}
	bus := start()
	defer func() { bus.Shutdown() }()
	js := connect(t, port)
	if err := eventbus.EnsureStreams(t.Context(), js, eventbus.StreamOptions{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultProducer()
	cfg.Features, cfg.Libraries = []string{"memory"}, []string{library}
	agent, err := producer.New(cfg, "test", connect(t, port), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	fold := &ordered{Tracker: leak.New(leak.Config{})}
	folding := consumer.NewReader(consumer.ReaderOptions{}, js, fold, slog.New(slog.DiscardHandler))
	producing, stopProducer := context.WithCancel(t.Context())
	consuming, stopConsumer := context.WithCancel(t.Context())
	produced, consumed := make(chan error, 1), make(chan error, 1)
	go func() { produced <- agent.Run(producing) }()
	go func() { consumed <- folding.Run(consuming) }()

	truths := t.TempDir()
	workload := exec.Command(workloadPath, "rate", "--rate", "20000", "--seconds", "26")
	workload.Env = append(os.Environ(), "GPUTAP_STUB_TRUTH="+truths)
	if err := workload.Start(); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * time.Second)
	bus.Shutdown()
	bus.WaitForShutdown()
	<-time.After(outage)
	bus = start()
	if err := workload.Wait(); err != nil {
		t.Fatal(err)
	}
	stopProducer()
	if err := <-produced; err != nil {
		t.Fatal(err)
	}
	jsStream, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := folding.WaitFor(waiting, jsStream.CachedInfo().State.LastSeq); err != nil {
		t.Fatal(err)
	}
	stopConsumer()
	if err := <-consumed; err != nil {
		t.Error(err)
	}
	images, err := stub.Images(truths)
	if err != nil || len(images) != 1 {
		t.Fatalf("%d totals of the stub: %v", len(images), err)
	}
	if len(fold.bad) > 0 {
		t.Errorf("order was lost: %v", fold.bad)
	}
	for cause, n := range folding.Lost() {
		if n > 0 {
			t.Errorf("%d events lost: %s", n, schema.Loss(cause))
		}
	}
	if s := folding.Stats(); s.Missing != 0 {
		t.Errorf("%d batches missing", s.Missing)
	}
	sameCalls(t, fold.Report(), images[0])
}

// sameCalls compares every call that both the stub and gputap count; there must be some.
func sameCalls(t *testing.T, r leak.Report, want stub.Image) {
	t.Helper()
	folded := map[string]uint64{}
	for _, p := range r.Processes {
		if p.ID.PID == want.PID {
			for _, c := range p.Calls {
				folded[c.Symbol] = c.OK
			}
		}
	}
	for _, symbol := range []string{"cuMemAlloc_v2", "cuMemFree_v2"} {
		if folded[symbol] != want.Calls[symbol].OK || want.Calls[symbol].OK != 260_000 {
			t.Errorf("%s: %d folded, %d counted by the stub, 260,000 asked for", symbol, folded[symbol],
				want.Calls[symbol].OK)
		}
	}
}

func connect(t *testing.T, port int) jetstream.JetStream {
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
