package launch

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/schema"
)

// training returns one batch of a training step: 4,096 launches of 60 kernels in 180 shapes by 2 threads.
func training(gpus uint32) []byte {
	r := rand.New(rand.NewPCG(1, 1))
	b := schema.NewBuilder(schema.KindLaunch)
	p := b.Process(schema.Process{PID: 1, Comm: "train"})
	threads := []uint32{b.Thread(schema.Thread{Process: p, TID: 1}), b.Thread(schema.Thread{Process: p, TID: 2})}
	c := b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})
	var shapes []uint32
	for i := range uint32(180) {
		f := b.Func(schema.Func{Name: fill + string(rune('A'+i%60))})
		shapes = append(shapes, b.Shape(schema.LaunchShape{Call: c, Func: f, Grid: [3]uint32{i, 1, 1},
			Block: [3]uint32{256, 1, 1}}))
	}
	for i := range gpus {
		b.GPU(schema.GPU{UUID: string(rune('a' + i)), Ordinal: i})
	}
	q := b.CUDAStream(0)
	for i := range 4096 {
		b.AddLaunch(&schema.Launch{
			Time: schema.KTime(1000 * i), Thread: threads[r.IntN(2)], GPU: 1 + r.Uint32N(gpus),
			Shape: shapes[r.IntN(len(shapes))], CUDAStream: q,
		})
	}
	return bytes.Clone(b.Encode(&schema.Header{Host: "h", BootID: "boot"}))
}

// serving returns one batch of an inference server: 4,096 launches of 20 graphs with 60 kernels each.
func serving() []byte {
	r := rand.New(rand.NewPCG(1, 1))
	b := schema.NewBuilder(schema.KindLaunch)
	thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 1, Comm: "serve"}), TID: 1})
	c := b.Call(schema.CallRef{Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch})
	var nodes []schema.Node
	for i := range 60 {
		nodes = append(nodes, schema.Node{Func: b.Func(schema.Func{Name: fill + string(rune('A'+i))}),
			Count: uint32(1 + i%7)})
	}
	var shapes []uint32
	for i := range uint64(20) {
		f := b.Func(schema.Func{Handle: 1 + i})
		b.Graph(schema.Graph{Func: f, Nodes: nodes})
		shapes = append(shapes, b.Shape(schema.LaunchShape{Call: c, Func: f}))
	}
	gpu, q := b.GPU(schema.GPU{UUID: "a"}), b.CUDAStream(0)
	for i := range 4096 {
		b.AddLaunch(&schema.Launch{Time: schema.KTime(1000 * i), Thread: thread, GPU: gpu,
			Shape: shapes[r.IntN(len(shapes))], CUDAStream: q})
	}
	return bytes.Clone(b.Encode(&schema.Header{Host: "h", BootID: "boot"}))
}

func BenchmarkApply(b *testing.B) {
	for _, bb := range []struct {
		name   string
		data   []byte
		decode bool
	}{
		{"one GPU", training(1), false}, {"one GPU, decode included", training(1), true},
		{"two GPUs", training(2), false},
		{"graphs", serving(), false}, {"graphs, decode included", serving(), true},
	} {
		b.Run(bb.name, func(b *testing.B) {
			data, h, d := bb.data, New(Config{}), schema.NewDecoder()
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
				if err := h.Apply(&batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
