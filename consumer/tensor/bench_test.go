package tensor

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// train returns batches of one process whose allocator takes and returns blocks: live of them are live at a time.
func train(live, batches int) (all [][]byte) {
	rng := rand.New(rand.NewPCG(1, 1))
	b := schema.NewBuilder(schema.KindTensor)
	sizes, at := make([]uint64, 2*live), uint64(0)
	for n := range batches {
		p := b.Process(schema.Process{PID: 7, Start: 1, Comm: "python"})
		gpu := b.GPU(schema.GPU{UUID: "GPU-0"})
		var threads [2]uint32
		for i := range threads {
			threads[i] = b.Thread(schema.Thread{Process: p, TID: uint32(7 + i)})
		}
		alloc := b.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockAlloc})
		free := b.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockFree})
		for i := range 4096 {
			slot := rng.IntN(len(sizes))
			e := schema.Tensor{Time: schema.KTime(10_000 * (n*4096 + i)), Thread: threads[i/64%2], GPU: gpu, Call: free,
				Ptr: 1<<40 + uint64(slot)<<16, Bytes: sizes[slot], Reserved: 1 << 36}
			if at -= sizes[slot]; sizes[slot] == 0 {
				sizes[slot] = 512 * (1 + rng.Uint64N(100))
				e.Call, e.Bytes = alloc, sizes[slot]
				at += sizes[slot]
			} else {
				sizes[slot] = 0
			}
			e.Allocated = at
			b.AddTensor(&e)
		}
		all = append(all, bytes.Clone(b.Encode(&schema.Header{Host: "h", BootID: "boot", Seq: uint64(n + 1)})))
		b.Reset()
	}
	return all
}

func BenchmarkApply(b *testing.B) {
	for _, bb := range []struct {
		name   string
		live   int
		decode bool
	}{{"1000 blocks", 1000, false}, {"1000 blocks, decode included", 1000, true}, {"100000 blocks", 100_000, false}} {
		b.Run(bb.name, func(b *testing.B) {
			data := train(bb.live, 200)
			decoder := schema.NewDecoder()
			decoded := make([]schema.Batch, len(data))
			for i := range data {
				if err := decoder.Decode(data[i], &decoded[i]); err != nil {
					b.Fatal(err)
				}
			}
			f := New(Config{})
			var one schema.Batch
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				batch := &decoded[i%len(data)]
				if bb.decode {
					if err := decoder.Decode(data[i%len(data)], &one); err != nil {
						b.Fatal(err)
					}
					batch = &one
				}
				if err := f.Apply(batch); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}

// filled returns a fold with so many live blocks.
func filled(n int) *Fold {
	f := New(Config{})
	entry := f.processes.Threads(&schema.Batch{
		Header:    schema.Header{Host: "h", BootID: "boot"},
		Processes: []schema.Process{{PID: 7, Start: 1}}, Threads: []schema.Thread{{TID: 7}},
	})[0]
	s := &entry.State
	d := s.device(0)
	for i := range n {
		e := schema.Tensor{Time: schema.KTime(i + 1), Ptr: 1<<40 + uint64(i)<<9, Bytes: 512 + uint64(i%1000)<<12}
		s.apply(d, &e, 7, false, time.Minute)
	}
	return f
}

// TestBlockFitsInto64Bytes measures the memory of a million live blocks.
func TestBlockFitsInto64Bytes(t *testing.T) {
	const n = 1_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := filled(n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.1f bytes for each of %d blocks", each, n)
	if each > 64 || len(f.Report(1)) != 1 {
		t.Errorf("%.1f bytes for each block", each)
	}
}

func BenchmarkReport(b *testing.B) {
	f := filled(1_000_000)
	b.Run("report", func(b *testing.B) {
		for b.Loop() {
			f.Report(20)
		}
	})
	b.Run("samples", func(b *testing.B) {
		for b.Loop() {
			f.samples()
		}
	})
}
