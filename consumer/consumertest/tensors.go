package consumertest

import (
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/schema"
)

// WithTensors returns the steps of Traffic with tensor batches between them: arbitrary reports of PyTorch's allocators
// in the same processes. The same seed returns the same steps.
func WithTensors(tb testing.TB, seed uint64, steps []Step) (all []Step) {
	r := traffic{rng: rand.New(rand.NewPCG(seed, 77))}
	for _, step := range steps {
		if all = append(all, step); step.Lost > 0 {
			continue
		}
		for range r.rng.IntN(3) {
			header := Decode(tb, step.Message).Header
			header.Lost[schema.LossTensorRing] = r.rng.Uint64N(12) / 11
			r.now = max(r.now, header.Last)
			all = append(all, Step{Message: r.tensors(&Host{Header: header, tb: tb})})
		}
	}
	return all
}

func (r *traffic) tensors(h *Host) []byte {
	b := schema.NewBuilder(schema.KindTensor)
	for range 30 {
		r.now += 1 + schema.KTime(r.rng.Uint64N(1000))
		thread, gpu := r.thread(h, b)
		op := schema.OpBlockAlloc
		if r.rng.IntN(3) == 0 {
			op = schema.OpBlockFree
		}
		bytes := r.rng.Uint64N(1 << r.rng.Uint64N(36))
		b.AddTensor(&schema.Tensor{
			Time: r.now, Thread: thread, GPU: gpu, Ptr: 1<<40 + r.rng.Uint64N(40)<<21, Bytes: bytes,
			Call:      b.Call(schema.CallRef{Symbol: "report", Op: op}),
			Allocated: bytes + r.rng.Uint64N(3)<<20, Reserved: bytes + 1<<22,
		})
	}
	return r.encode(h, b)
}
