//go:build bpf

package producer

import (
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// TestEndsOfRealCalls: threads of several programs allocate, launch and copy while heartbeats come every few ms. The
// last heartbeat names the last batch of every kind.
func TestEndsOfRealCalls(t *testing.T) {
	cfg := config.DefaultProducer()
	cfg.Heartbeat, cfg.BatchAge = 3*time.Millisecond, 20*time.Millisecond
	cfg.Features = []string{"memory", "launch", "copy", "sync"}
	messages := watchWith(t, cfg, slog.New(slog.DiscardHandler), func(*Producer) {
		for _, args := range [][]string{
			{"rate", "--seconds", "1", "--rate", "30000", "--threads", "4"},
			{"rate", "--launches", "--seconds", "1", "--rate", "30000", "--threads", "4"},
			{"copies"}, {"every"},
		} {
			if out, err := exec.Command(producertest.Built(t, "workload"), args...).CombinedOutput(); err != nil {
				t.Fatalf("workload %v: %v: %s", args, err, out)
			}
		}
	})
	if n := checkEnds(t, messages); n < 200 {
		t.Errorf("only %d ends had later events", n)
	}
	var seqs [schema.NumKinds]uint64
	var last schema.KTime
	var final []schema.End
	decoder := schema.NewDecoder()
	for _, data := range messages {
		var b schema.Batch
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		seqs[b.Kind], last = max(seqs[b.Kind], b.Seq), max(last, b.Last)
		if b.Kind == schema.KindHost {
			final = b.Ends
		}
	}
	if len(final) != 5 {
		t.Fatalf("the last heartbeat has %d ends: %+v", len(final), final)
	}
	for _, end := range final {
		if end.Seq != seqs[end.Kind] || end.Through <= last {
			t.Errorf("the last heartbeat ends %s at batch %d through %d, want %d after %d", end.Kind, end.Seq,
				end.Through, seqs[end.Kind], last)
		}
	}
}
