package anomaly

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// memoryBatch returns a batch of 4,096 allocations and frees. Every n-th allocation is large; 0: none.
func memoryBatch(b *testing.B, n uint64) []byte {
	h := consumertest.Memory(b, "gpu-01")
	p := h.Process(42, 1, "train")
	for i := range uint64(2048) {
		bytes := (i%1000 + 1) << 10
		if n > 0 && i%n == n-1 {
			bytes = 64<<20 + i
		}
		p.Alloc(uint32(i%4), 0x1000+i<<12, bytes, schema.KTime(i*1000), 300)
		p.Free(uint32(i%4), 0x1000+i<<12, schema.KTime(i*1000+500), 300)
	}
	return h.Message()
}

// launchBatch returns a batch of 4,096 launches in 180 shapes by 2 threads.
func launchBatch() []byte {
	r, b := rand.New(rand.NewPCG(1, 1)), schema.NewBuilder(schema.KindLaunch)
	p := b.Process(schema.Process{PID: 1, Comm: "train"})
	threads := []uint32{b.Thread(schema.Thread{Process: p, TID: 1}), b.Thread(schema.Thread{Process: p, TID: 2})}
	c := b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})
	var shapes []uint32
	for i := range uint32(180) {
		shapes = append(shapes, b.Shape(schema.LaunchShape{Call: c, Func: b.Func(schema.Func{Handle: uint64(i % 60)}),
			Grid: [3]uint32{i, 1, 1}}))
	}
	for i := range 4096 {
		b.AddLaunch(&schema.Launch{Time: schema.KTime(1000 * i), Thread: threads[r.IntN(2)],
			Shape: shapes[r.IntN(len(shapes))], CUDAStream: b.CUDAStream(0)})
	}
	return b.Encode(&schema.Header{Host: "h", BootID: "boot"})
}

// copyBatch returns a batch of 4,096 copies of 4 calls by 4 threads; nearly all of them are large.
func copyBatch() []byte {
	r, b := rand.New(rand.NewPCG(1, 1)), schema.NewBuilder(schema.KindCopy)
	p := b.Process(schema.Process{PID: 1, Comm: "train"})
	for i := range uint32(4) {
		b.Thread(schema.Thread{Process: p, TID: i})
	}
	b.GPU(schema.GPU{UUID: "a"})
	for i, op := range []schema.Op{schema.OpCopy, schema.OpCopy, schema.OpCopyAsync, schema.OpCopyAsync} {
		b.Call(schema.CallRef{Symbol: string(rune('a' + i)), Op: op,
			Direction: []schema.Direction{schema.HtoD, schema.DtoH}[i%2]})
	}
	for i := range 4096 {
		b.AddCopy(&schema.Copy{
			Time: schema.KTime(10_000 * i), Duration: 3000 + r.Uint64N(400_000), Thread: r.Uint32N(4),
			Call: r.Uint32N(4), GPU: 1, Bytes: r.Uint64N(16 << 20), Dst: r.Uint64N(1 << 47), Src: r.Uint64N(1 << 47),
			CUDAStream: b.CUDAStream(0),
		})
	}
	return b.Encode(&schema.Header{Host: "h", BootID: "boot"})
}

// BenchmarkApply applies encoded batches of 4,096 events with all rules on, decoding included.
func BenchmarkApply(b *testing.B) {
	for _, bb := range []struct {
		name    string
		message []byte
	}{
		{"ordinary", memoryBatch(b, 0)}, {"large", memoryBatch(b, 64)}, {"segments", memoryBatch(b, 1)},
		{"launches", launchBatch()}, {"copies", copyBatch()}, {"tensors", tensorBatch()},
	} {
		b.Run(bb.name, func(b *testing.B) {
			decoder, batch := schema.NewDecoder(), &schema.Batch{}
			d := New(Config{Rules: rule.Config{Mode: rule.Alert}})
			events := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := decoder.Decode(bb.message, batch); err != nil {
					b.Fatal(err)
				}
				if err := d.Apply(batch); err != nil {
					b.Fatal(err)
				}
				events += batch.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkTick closes a window of a thousand processes with ten minutes of history.
func BenchmarkTick(b *testing.B) {
	h := consumertest.Memory(b, "gpu-01")
	for pid := range uint32(1000) {
		h.Process(100+pid, 1, "train").Alloc(1, 1<<30, 1<<20, 5, 1)
	}
	d, batch := New(Config{Rules: rule.Config{Mode: rule.Alert}}), h.Batch()
	through, header := schema.KTime(0), batch.Header
	for b.Loop() {
		through += schema.KTime(10 * time.Second)
		for _, p := range d.table.Of(hostOf(&header)) {
			if to := p.State.At(rule.IndexOf(through - 1)); to != nil {
				to.Allocs, to.Launches = 100, 10_000
			}
		}
		if through == schema.KTime(10*time.Second) {
			if err := d.Apply(batch); err != nil {
				b.Fatal(err)
			}
		}
		d.Tick(&header, through)
	}
}
