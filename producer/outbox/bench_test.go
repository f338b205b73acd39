package outbox

import (
	"crypto/rand"
	"testing"
)

// BenchmarkAppendNextAck stores batches of 320 events, and acks each at once: docs/measurements/outbox-store.md.
func BenchmarkAppendNextAck(b *testing.B) {
	for name, size := range map[string]int{"6KiB": 6 << 10, "128KiB": 128 << 10} {
		b.Run(name, func(b *testing.B) {
			o, batch := benchmark(b, size)
			for b.Loop() {
				appendBatch(b, o, batch)
				o.Ack(next(b, o, memory))
			}
		})
	}
}

// BenchmarkBacklog stores a backlog, and then acks it.
func BenchmarkBacklog(b *testing.B) {
	o, batch := benchmark(b, 6<<10)
	n := 0
	for b.Loop() {
		appendBatch(b, o, batch)
		if n++; n%10_000 == 0 {
			o.syncNow()
		}
	}
	b.ReportMetric(float64(o.Stats().Bytes)/float64(n), "disk-B/op")
	began := b.Elapsed()
	b.StartTimer()
	for range n {
		o.Ack(next(b, o, memory))
	}
	o.syncNow()
	b.StopTimer()
	b.ReportMetric(float64((b.Elapsed()-began).Nanoseconds())/float64(n), "drain-ns/op")
	if left := o.Stats().Bytes; left > 8<<20 {
		b.Errorf("%d bytes are left", left)
	}
}

func benchmark(b *testing.B, size int) (*Outbox, *Batch) {
	opts := options(b.TempDir())
	opts.SegmentBytes, opts.MaxBytes = 0, 8<<30
	batch := &Batch{Kind: memory, Data: make([]byte, size), Events: 320}
	_, _ = rand.Read(batch.Data)
	b.SetBytes(int64(size))
	return open(b, opts), batch
}

func appendBatch(b *testing.B, o *Outbox, batch *Batch) {
	again := *batch
	if err := o.Append(&again, false); err != nil {
		b.Fatal(err)
	}
}
