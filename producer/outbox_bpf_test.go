//go:build bpf

package producer

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// TestProducerWithOutbox runs two producers, one after the other, while NATS is unreachable. Each watches a program and
// stores its batches on disk. A third one connects later and sends all batches.
func TestProducerWithOutbox(t *testing.T) {
	producertest.RequireBPF(t)
	bus, dir, log := newUnreliableNATS(t), t.TempDir(), &logged{}
	cfg := config.DefaultProducer()
	cfg.Cluster, cfg.Host, cfg.Libraries, cfg.Outbox = "c", "h", []string{producertest.Built(t, "stub/libcuda.so.1")},
		dir
	run := func(drain time.Duration) {
		t.Helper()
		cfg.DrainTimeout = drain
		p, err := New(cfg, "test", bus.connect(), log.logger())
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		if drain > time.Second {
			bus.start()
		}
		if out, err := exec.Command(producertest.Built(t, "workload"), "later").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		producertest.Eventually(t, "the exit is told", func() bool {
			return p.metrics.events[schema.OpExit].Load() == 1
		})
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	run(10 * time.Millisecond)
	run(10 * time.Millisecond)
	if log.count("stay in the outbox") != 2 {
		t.Errorf("it says %s", &log.text)
	}
	run(30 * time.Second)
	jsStream, err := bus.connect().Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	exits, runs := 0, []uint64{}
	decoder := schema.NewDecoder()
	for seq := uint64(1); seq <= jsStream.CachedInfo().State.LastSeq; seq++ {
		m, err := jsStream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var b schema.Batch
		if err := decoder.Decode(m.Data, &b); err != nil {
			t.Fatal(err)
		}
		if b.Kind != schema.KindMemory {
			continue
		}
		if len(runs) == 0 || runs[len(runs)-1] != b.Run {
			runs = append(runs, b.Run)
		}
		for i := range b.Events {
			if b.Calls[b.Memory(i).Call].Op == schema.OpExit {
				exits++
			}
		}
	}
	if exits != 3 || len(runs) != 3 || runs[0] > runs[1] || runs[1] > runs[2] {
		t.Errorf("%d exits in the runs %v, want 3 in 3", exits, runs)
	}
	if left := files(t, dir, "*.*"); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}
