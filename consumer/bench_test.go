package consumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// counting is the cheapest fold there is: the rest is the cost of the runtime.
type counting struct{ events int }

func (c *counting) Name() string         { return "counting" }
func (c *counting) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory} }
func (c *counting) Apply(b *schema.Batch) error {
	c.events += b.Events
	return nil
}

const turns = 8 // of reading and of raw reading: one alone says little

// BenchmarkReadStream fetches, decodes and applies stored batches of 4,096 memory events, in turn with an ordered
// consumer of JetStream that does nothing with the same messages.
func BenchmarkReadStream(b *testing.B) {
	js := connectReady(b)
	h := schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1}
	builder := schema.NewBuilder(schema.KindMemory)
	fill(builder, 4096)
	const batches = 1000
	var last uint64
	for h.Seq < batches {
		h.Seq++
		data := builder.Encode(&h)
		b.SetBytes(turns * batches * int64(len(data)))
		last = publish(b, js, schema.KindMemory, data)
	}
	var took, raw time.Duration
	for b.Loop() {
		for range turns {
			fold, began := &counting{}, time.Now()
			c, stop := start(b, js, fold, ReaderOptions{})
			wait(b, c, last)
			took += time.Since(began)
			stop()
			if fold.events != batches*4096 {
				b.Fatalf("%d events", fold.events)
			}
			raw += readRaw(b, js, last)
		}
	}
	events := float64(b.N * turns * batches * 4096)
	b.ReportMetric(events/took.Seconds()/1e6, "Mevents/s")
	b.ReportMetric(events/raw.Seconds()/1e6, "raw-Mevents/s")
	b.ReportMetric(raw.Seconds()/took.Seconds(), "ratio")
}

// BenchmarkReadFleet reads a shard as a fleet fills it: small batches of 625 hosts and all kinds, of which the fold
// wants one. In turn with an ordered consumer of JetStream that does nothing with the same messages. An ordinary host
// is that of docs/scaling.md; of an even one each kind has as many batches.
func BenchmarkReadFleet(b *testing.B) {
	const memory, launch, copied, host = schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindHost
	var ordinary []schema.Kind // ten seconds' batches of a host
	for range 100 {
		ordinary = append(ordinary, memory, launch, launch, copied, copied)
	}
	for name, kinds := range map[string][]schema.Kind{"ordinary": append(ordinary, host),
		"even": slices.Repeat([]schema.Kind{memory, launch, copied, host}, 120)} {
		b.Run(name, func(b *testing.B) { readFleet(b, kinds) })
	}
}

// readFleet has each host publish batches of these kinds in turn.
func readFleet(b *testing.B, kinds []schema.Kind) {
	js := connectReady(b)
	const hosts = 625
	builder, events := schema.NewBuilder(schema.KindMemory), 0
	fill(builder, 8)
	seq := [schema.NumKinds]uint64{}
	var last jetstream.PubAckFuture
	for _, kind := range kinds {
		seq[kind]++
		for host := range hosts {
			h := schema.Header{Cluster: "c", Host: fmt.Sprint("host-", host), BootID: "b", Run: 1, Seq: seq[kind]}
			data := encode(kind, h)
			if kind == schema.KindMemory {
				data = builder.Encode(&h)
				events += 8
			}
			var err error
			if last, err = js.PublishAsync(schema.Subject(0, h.Cluster, h.Host, kind), data); err != nil {
				b.Fatal(err)
			}
		}
	}
	<-js.PublishAsyncComplete()
	ack := <-last.Ok()
	var took, raw time.Duration
	for b.Loop() {
		for range turns {
			fold, began := &counting{}, time.Now()
			c, stop := start(b, js, fold, ReaderOptions{})
			wait(b, c, ack.Sequence)
			took += time.Since(began)
			stop()
			if fold.events != events {
				b.Fatalf("%d events, want %d", fold.events, events)
			}
			raw += readRaw(b, js, ack.Sequence)
		}
	}
	messages := float64(b.N*turns) * float64(ack.Sequence)
	b.ReportMetric(float64(took.Nanoseconds())/messages, "ns/message")
	b.ReportMetric(float64(raw.Nanoseconds())/messages, "raw-ns/message")
	b.ReportMetric(raw.Seconds()/took.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// readRaw times what JetStream takes to hand the messages over.
func readRaw(b *testing.B, js jetstream.JetStream, last uint64) time.Duration {
	began := time.Now()
	ordered, err := js.OrderedConsumer(b.Context(), schema.StreamName(0), jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	reading, err := ordered.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil && meta.Sequence.Stream == last {
			close(done)
		}
	}, jetstream.PullMaxBytes(defaultPullBytes))
	if err != nil {
		b.Fatal(err)
	}
	<-done
	reading.Stop()
	return time.Since(began)
}

// BenchmarkPublishToApply times one batch from its publication to the end of its fold.
func BenchmarkPublishToApply(b *testing.B) {
	js := connectReady(b)
	h := schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1}
	builder := schema.NewBuilder(schema.KindMemory)
	fill(builder, 4096)
	c, _ := start(b, js, &counting{}, ReaderOptions{})
	<-c.Ready()
	for b.Loop() {
		h.Seq++
		wait(b, c, publish(b, js, schema.KindMemory, builder.Encode(&h)))
	}
}

func fill(b *schema.Builder, events int) {
	p := b.Process(schema.Process{PID: 1, Start: 1, Comm: "p"})
	for i := range uint64(events) {
		b.AddMemory(&schema.Memory{
			Time: schema.KTime(i * 1000), Duration: i % 500, Thread: b.Thread(schema.Thread{Process: p, TID: 1}),
			Call: b.Call(schema.Calls[2].Ref()), Ptr: 0x7f00_0000_0000 + i<<21, Bytes: 4096 * (1 + i%7),
		})
	}
}
