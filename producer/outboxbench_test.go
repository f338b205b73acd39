package producer

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/gputap/gputap/schema"
)

// BenchmarkSpool takes batches in and gives them out at once, without an outbox and with one, in turn; "kept" is an outbox
// whose bus is away.
func BenchmarkSpool(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"16KiB", 16 << 10}, {"128KiB", 128 << 10}} {
		b.Run(size.name+"/memory", func(b *testing.B) { benchSpool(b, newSpool(64<<20), size.bytes, true) })
		b.Run(size.name+"/outbox", func(b *testing.B) {
			benchSpool(b, spoolAt(b, b.TempDir(), 64<<20, 4<<30, segmentBytes, quiet()), size.bytes, true)
		})
		b.Run(size.name+"/kept", func(b *testing.B) {
			benchSpool(b, spoolAt(b, b.TempDir(), 64<<20, 1<<30, segmentBytes, quiet()), size.bytes, false)
		})
	}
}

func benchSpool(b *testing.B, s *spool, bytes int, acking bool) {
	ctx, end := context.WithCancel(b.Context())
	var store, acker sync.WaitGroup
	if s.outbox != nil {
		store.Go(func() { s.store(ctx) })
	}
	data := make([]byte, bytes)
	n := 0
	if acking {
		acker.Go(func() {
			for {
				if _, err := s.next(ctx, schema.KindMemory); err != nil {
					return
				}
				s.acked(schema.KindMemory)
			}
		})
	}
	b.SetBytes(int64(bytes))
	for b.Loop() {
		n++
		s.push(schema.KindMemory, data, encoded{seq: uint64(n), events: 1, at: 1})
		for l := s.level(); l.unstored*bytes > 32<<20; l = s.level() { // else memory drops
			runtime.Gosched()
		}
	}
	for l := s.level(); l.unstored > 0 || acking && l.batches > 0; l = s.level() {
		runtime.Gosched()
	}
	b.StopTimer()
	end()
	store.Wait()
	acker.Wait()
	if l := s.level(); l.droppedN > 0 && acking {
		b.Errorf("dropped %d of %d", l.droppedN, n)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "batches/s")
}
