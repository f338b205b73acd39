package consumer

import (
	"testing"

	"github.com/gputap/gputap/schema"
)

// counting is the cheapest fold there is: what is left is the runtime.
type counting struct{ events int }

func (c *counting) Name() string         { return "counting" }
func (c *counting) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory} }
func (c *counting) Apply(b *schema.Batch) error {
	c.events += b.Events
	return nil
}

// BenchmarkReadStream fetches, decodes and applies stored batches of 4,096 memory events.
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
		b.SetBytes(batches * int64(len(data)))
		last = publish(b, js, schema.KindMemory, data)
	}
	for b.Loop() {
		fold := &counting{}
		c, stop := start(b, js, fold, ReaderOptions{})
		wait(b, c, last)
		stop()
		if fold.events != batches*4096 {
			b.Fatalf("%d events", fold.events)
		}
	}
	b.ReportMetric(float64(b.N*batches*4096)/b.Elapsed().Seconds()/1e6, "Mevents/s")
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
