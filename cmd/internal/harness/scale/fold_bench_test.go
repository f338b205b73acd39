package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

// counting is the cheapest fold, so that a benchmark measures the way from ack to fold.
type counting struct{ events atomic.Int64 }

func (c *counting) Name() string         { return "counting" }
func (c *counting) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory} }
func (c *counting) Apply(b *schema.Batch) error {
	c.events.Add(int64(b.Events))
	return nil
}

// BenchmarkAckToFold reads shards of a cluster with three nodes and three replicas into a fold that counts, in turn
// with an ordered no-op consumer as the baseline. The mixes are those of package consumer's benchmarks, which run one
// server in their process.
func BenchmarkAckToFold(b *testing.B) {
	const memory, launch, copied, host = schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindHost
	var ordinary []schema.Kind
	for range 60 {
		ordinary = append(ordinary, memory, launch, launch, copied, copied)
	}
	js := startCluster(b, 3)
	for shard, m := range []struct {
		name   string
		kinds  []schema.Kind
		hosts  int
		events int // of a memory batch; the others have none
	}{
		{"full", slices.Repeat([]schema.Kind{memory}, 3000), 1, 4096},
		{"ordinary", append(ordinary, host), 625, 8},
		{"even", slices.Repeat([]schema.Kind{memory, launch, copied, host}, 75), 625, 8},
	} {
		b.Run(m.name, func(b *testing.B) {
			want, last := storeMix(b, js, shard, m.kinds, m.hosts, m.events)
			readAll(b, js, shard, last) // into the page cache
			var took, raw time.Duration
			for b.Loop() {
				took += foldAll(b, js, shard, last, want)
				raw += readAll(b, js, shard, last)
			}
			b.ReportMetric(raw.Seconds()/took.Seconds(), "ratio")
			b.ReportMetric(float64(last)*float64(b.N)/took.Seconds(), "messages/s")
		})
	}
}

func startCluster(b *testing.B, shards int) jetstream.JetStream {
	w, err := cluster.NewWorkspace(b.TempDir(), "bench", io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close(false) })
	if err := cluster.Build(b.Context(), "../../../..", w.Bin); err != nil {
		b.Fatal(err)
	}
	list, err := w.Nodes(nodes, fmt.Sprint(16<<30))
	if err != nil {
		b.Fatal(err)
	}
	js, err := w.StartNodes(b.Context(), list, shards, 8<<30)
	if err != nil {
		b.Fatal(err)
	}
	return js
}

// storeMix has each host publish batches of these kinds in turn. It returns how many memory events and messages it
// stored.
func storeMix(b *testing.B, js jetstream.JetStream, shard int, kinds []schema.Kind, hosts, events int) (want int64,
	last uint64) {
	const atOnce = 500
	builders := map[schema.Kind]*schema.Builder{}
	seq := [schema.NumKinds]uint64{}
	for _, kind := range kinds {
		builder := builders[kind]
		if builder == nil {
			builder = schema.NewBuilder(kind)
			builders[kind] = builder
			if kind == schema.KindMemory {
				fillMemory(builder, events)
			}
		}
		seq[kind]++
		for n := range hosts {
			h := schema.Header{Cluster: "c", Host: fmt.Sprint("host-", n), BootID: "b", Run: 1, Seq: seq[kind]}
			if _, err := js.PublishAsync(schema.Subject(shard, h.Cluster, h.Host, kind),
				builder.Encode(&h)); err != nil {
				b.Fatal(err)
			}
			if kind == schema.KindMemory {
				want += int64(events)
			}
			if last++; last%atOnce == 0 {
				<-js.PublishAsyncComplete()
			}
		}
	}
	<-js.PublishAsyncComplete()
	return want, last
}

func fillMemory(b *schema.Builder, events int) {
	p := b.Process(schema.Process{PID: 1, Start: 1, Comm: "p"})
	for i := range uint64(events) {
		b.AddMemory(&schema.Memory{
			Time: schema.KTime(i * 1000), Duration: i % 500, Thread: b.Thread(schema.Thread{Process: p, TID: 1}),
			Call: b.Call(schema.Calls[2].Ref()), Ptr: 0x7f00_0000_0000 + i<<21, Bytes: 4096 * (1 + i%7),
		})
	}
}

func foldAll(b *testing.B, js jetstream.JetStream, shard int, last uint64, want int64) time.Duration {
	fold, began := &counting{}, time.Now()
	r := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, js, fold, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	err := r.WaitFor(ctx, last)
	took := time.Since(began)
	stop()
	if ran := <-ended; err != nil || ran != nil {
		b.Fatal(err, ran)
	}
	if fold.events.Load() != want {
		b.Fatalf("%d events, want %d", fold.events.Load(), want)
	}
	return took
}

// readAll returns how long a no-op consumer takes to receive the messages.
func readAll(b *testing.B, js jetstream.JetStream, shard int, last uint64) time.Duration {
	began := time.Now()
	ordered, err := js.OrderedConsumer(b.Context(), schema.StreamName(shard), jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	taking, err := ordered.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil && meta.Sequence.Stream == last {
			close(done)
		}
	}, jetstream.PullMaxBytes(8<<20))
	if err != nil {
		b.Fatal(err)
	}
	<-done
	taking.Stop()
	return time.Since(began)
}
