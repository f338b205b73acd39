package bandwidth

import (
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/schema"
)

// loader returns one batch of a data loader: 4,096 copies of 4 calls by 4 threads. With failures, every hundredth
// copy fails.
func loader(gpus uint32, failures bool) []byte {
	r := rand.New(rand.NewPCG(1, 1))
	b := schema.NewBuilder(schema.KindCopy)
	p := b.Process(schema.Process{PID: 1, Comm: "train"})
	for i := range uint32(4) {
		b.Thread(schema.Thread{Process: p, TID: i})
	}
	for i := range gpus {
		b.GPU(schema.GPU{UUID: string(rune('a' + i)), Ordinal: i})
	}
	for _, symbol := range []string{htod, dtoh, htodAsync, dtodAsync} {
		b.Call(call(symbol).Ref())
	}
	q := b.CUDAStream(0)
	for i := range 4096 {
		c := schema.Copy{
			Time: schema.KTime(10_000 * i), Duration: 3000 + r.Uint64N(400_000), Thread: r.Uint32N(4),
			Call: r.Uint32N(4),
			GPU:  1 + r.Uint32N(gpus), Bytes: r.Uint64N(16 << 20), Dst: r.Uint64N(1 << 47), Src: r.Uint64N(1 << 47),
			CUDAStream: q,
		}
		if failures && i%100 == 0 {
			c.Result = 1
		}
		b.AddCopy(&c)
	}
	return b.Encode(&schema.Header{Host: "h", BootID: "boot"})
}

func BenchmarkApply(b *testing.B) {
	for _, bb := range []struct {
		name     string
		gpus     uint32
		failures bool
		decode   bool
	}{
		{"one GPU", 1, false, false}, {"one GPU, decode included", 1, false, true},
		{"two GPUs", 2, false, false}, {"one GPU, 1 % failures", 1, true, false},
	} {
		b.Run(bb.name, func(b *testing.B) {
			data, m, d := loader(bb.gpus, bb.failures), New(Config{}), schema.NewDecoder()
			var batch schema.Batch
			if err := d.Decode(data, &batch); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if bb.decode {
					if err := d.Decode(data, &batch); err != nil {
						b.Fatal(err)
					}
				}
				if err := m.Apply(&batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
