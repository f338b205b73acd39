//go:build bpf

package producer

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

// filled returns a producer whose rings contain the calls of a workload.
func filled(b *testing.B, js jetstream.JetStream, function string, calls int) *Producer {
	cfg := config.DefaultProducer()
	cfg.Libraries = []string{stubPaths[schema.DriverLibrary]}
	cpus, err := ebpf.PossibleCPU() // Linux divides by all, not by those that this program may use
	if err != nil {
		b.Fatal(err)
	}
	cfg.RingBytes = config.Bytes(max(2, cpus)) * 256 << 20 // 128 MiB or more for each ring
	p, err := New(cfg, "bench", js, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	work(b, function, calls)
	return p
}

func work(b *testing.B, function string, calls int) {
	if out, err := exec.Command("../bin/workload", "bench", function, "--count",
		fmt.Sprint(calls)).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

const benchCalls = 500_000

// BenchmarkRingToBatch reads full rings into encoded batches; nothing is published.
func BenchmarkRingToBatch(b *testing.B) {
	for function, calls := range map[string]int{"launch": benchCalls, "alloc": benchCalls / 2, "copy": benchCalls} {
		b.Run(function, func(b *testing.B) {
			p := filled(b, newBus(b), function, calls)
			defer p.Close()
			records, took := 0, time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				p.take(b) // the first records cause allocations and look-ups; later ones do not
				work(b, function, calls)
				b.StartTimer()
				start := time.Now()
				records += p.reader.drain()
				p.batches.closeAll()
				took += time.Since(start)
			}
			if lost := p.lost(); lost != ([schema.NumLosses]uint64{}) {
				b.Fatalf("lost %v", lost)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(records), "ns/event")
			b.ReportMetric(float64(records)/took.Seconds()/1e6, "Mevents/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// take reads the rings, and removes all batches as if they were acked.
func (p *Producer) take(b *testing.B) {
	p.reader.drain()
	p.batches.closeAll()
	for kind := schema.KindMemory; kind <= schema.KindHost; kind++ {
		for p.spool.waiting(kind) > 0 {
			if _, err := p.spool.next(b.Context(), kind); err != nil {
				b.Fatal(err)
			}
			p.spool.acked(kind)
		}
	}
}

// BenchmarkRingToAck is the whole producer: full rings until the last batch is acked, in turn with raw publishes of the
// same bytes, one in flight, and with making as many bytes and not publishing them.
func BenchmarkRingToAck(b *testing.B) {
	js := newBus(b)
	var took, raw, made time.Duration
	var events uint64
	const calls = 1_800_000
	for b.Loop() {
		p := filled(b, js, "launch", calls)
		p.probes.Detach() // Linux takes its time over it
		began := time.Now()
		p.reader.drain()
		p.batches.closeAll()
		made += time.Since(began)
		p.Close()
		p = filled(b, js, "launch", calls)
		jsStream, err := js.Stream(b.Context(), schema.StreamName(0))
		if err != nil {
			b.Fatal(err)
		}
		first := jsStream.CachedInfo().State.LastSeq + 1
		ended, end := context.WithCancel(b.Context())
		end()
		p.probes.Detach() // Linux takes its time over it
		start := time.Now()
		if err := p.Run(ended); err != nil {
			b.Fatal(err)
		}
		took += time.Since(start)
		if lost := p.lost(); lost != ([schema.NumLosses]uint64{}) {
			b.Fatalf("lost %v", lost)
		}
		events += p.metrics.events[schema.OpLaunch].Load()
		raw += republish(b, js, first)
	}
	b.ReportMetric(float64(events)/took.Seconds()/1e6, "Mevents/s")
	b.ReportMetric(float64(events)/raw.Seconds()/1e6, "raw-Mevents/s")
	b.ReportMetric(raw.Seconds()/took.Seconds(), "ratio")
	b.ReportMetric(made.Seconds()/took.Seconds(), "made-ratio")
	b.ReportMetric(0, "ns/op")
}

// republish times publishing the stored batches again as they are.
func republish(b *testing.B, js jetstream.JetStream, first uint64) time.Duration {
	jsStream, err := js.Stream(b.Context(), schema.StreamName(0))
	if err != nil {
		b.Fatal(err)
	}
	var messages []*jetstream.RawStreamMsg
	for seq := first; seq <= jsStream.CachedInfo().State.LastSeq; seq++ {
		m, err := jsStream.GetMsg(b.Context(), seq)
		if err != nil {
			b.Fatal(err)
		}
		messages = append(messages, m)
	}
	start := time.Now()
	for _, m := range messages {
		if _, err := js.Publish(b.Context(), m.Subject, m.Data); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}
