package snapshot_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// hostile makes well-formed messages with any content: times that go back, calls that end before they begin, names and
// ordinals of GPUs that contradict each other, boots and runs in any order.
type hostile struct {
	*rand.Rand
	kinds []schema.Kind // that the fold reads
	wild  bool          // some times are far away
	seq   uint64
}

// testHostile: no fold panics, and a restored fold behaves like one that was not interrupted.
func (s suite) testHostile(t *testing.T, streams uint64) {
	t.Parallel()
	for seed := range streams {
		r := &hostile{Rand: rand.New(rand.NewPCG(seed, 7)), wild: seed%2 == 1}
		r.kinds = s.new().(interface{ Kinds() []schema.Kind }).Kinds()
		s.resume(t, r.steps(150), 6)
	}
}

func (r *hostile) steps(n int) (steps []consumertest.Step) {
	for range n {
		h := r.header()
		if r.IntN(12) == 0 {
			steps = append(steps, consumertest.Step{Lost: 1 + r.Uint64N(3), From: h})
			continue
		}
		kind := r.kinds[r.IntN(len(r.kinds))]
		b := schema.NewBuilder(kind)
		if kind == schema.KindMemory && r.IntN(6) == 0 {
			b.Older = []uint64{1, 3}
		}
		if kind == schema.KindRank {
			h.Host, b.Origin = "slurm:1", h.Host
		}
		for range r.IntN(12) {
			r.add(b, kind)
		}
		if kind == schema.KindHost {
			for k := range schema.NumKinds {
				if r.IntN(3) > 0 {
					b.Ends = append(b.Ends, schema.End{Kind: k, Seq: r.Uint64N(9), Through: r.time()})
				}
			}
		}
		r.seq++
		h.Seq = r.seq
		steps = append(steps, consumertest.Step{Message: slices.Clone(b.Encode(&h))})
	}
	return steps
}

func (r *hostile) header() schema.Header {
	h := schema.Header{Cluster: "c", Host: fmt.Sprint("h", r.IntN(2)), BootID: fmt.Sprint("b", r.IntN(20)/19),
		Run: []uint64{1, 1, 1, 1, 40e9}[r.IntN(5)], ClockOffset: 1_700_000_000e9}
	if h.BootID == "b1" {
		h.ClockOffset += 3600e9
	}
	if r.IntN(15) == 0 {
		h.ClockOffset = []int64{0, -1, math.MaxInt64, math.MinInt64, 1_700_000_001e9}[r.IntN(5)]
	}
	if r.IntN(8) == 0 {
		h.Lost[r.IntN(int(schema.NumLosses))] = r.Uint64N(30)
	}
	return h
}

// time is within some minutes, and seldom any.
func (r *hostile) time() schema.KTime {
	switch n := r.IntN(600); {
	case n < 5 && r.wild:
		return schema.KTime(r.Uint64())
	case n < 10 && r.wild:
		return []schema.KTime{0, 1, math.MaxInt64, math.MaxUint64}[r.IntN(4)]
	case n == 10:
		return schema.KTime(r.Uint64N(36000e9))
	}
	return schema.KTime(r.seq*1e9 + r.Uint64N(20e9))
}

func (r *hostile) amount() uint64 {
	if r.IntN(20) == 0 {
		return []uint64{0, 1, 1 << 50}[r.IntN(3)]
	}
	return r.Uint64N(1 << (r.IntN(34)))
}

// address is one of few, so that calls meet.
func (r *hostile) address() uint64 {
	return []uint64{0, 1, 2, 3, 4, 5, 1 << 63, math.MaxUint64}[r.IntN(8)]
}

func (r *hostile) thread(b *schema.Builder) uint32 {
	pid := 1 + r.Uint32N(4)
	p := schema.Process{PID: pid, Start: schema.KTime(pid * 10), Comm: fmt.Sprint("p", r.IntN(2)), Late: r.IntN(9) == 0,
		User: "u"}
	if pid > 1 {
		p.Job, p.Rank, p.Ranks = "slurm:1", r.Uint32N(7), []uint32{4, 4, 4, 0, 9000, 5}[r.IntN(6)]
	}
	return b.Thread(schema.Thread{Process: b.Process(p), TID: pid*10 + r.Uint32N(3), Comm: "t"})
}

func (r *hostile) gpu(b *schema.Builder) uint32 {
	switch r.IntN(4) {
	case 0:
		return 0
	case 1:
		return b.GPU(schema.GPU{Ordinal: r.Uint32N(3)})
	}
	ordinal := []uint32{0, 1, 2, 40, math.MaxUint32}[r.IntN(5)]
	return b.GPU(schema.GPU{UUID: []string{"GPU-0", "GPU-1", "#1", "#"}[r.IntN(4)], Ordinal: ordinal,
		Inferred: r.IntN(2) == 0, Bytes: []uint64{0, 80 << 30, 1 << 50}[r.IntN(3)]})
}

// call is any call of the table, or one that no table has.
func (r *hostile) call(b *schema.Builder, kind schema.Kind) uint32 {
	if r.IntN(9) == 0 {
		return b.Call(schema.CallRef{Symbol: "any", Op: schema.Op(r.IntN(int(schema.NumOps))),
			Class: schema.MemClass(r.IntN(int(schema.NumClasses)))})
	}
	for {
		if c := &schema.Calls[r.IntN(len(schema.Calls))]; c.Kind == kind {
			return b.Call(c.Ref())
		}
	}
}

func (r *hostile) result() uint32 { return []uint32{0, 0, 0, 0, 2, 700, math.MaxUint32}[r.IntN(7)] }

func (r *hostile) add(b *schema.Builder, kind schema.Kind) {
	took := r.Uint64N(3e9)
	if r.IntN(20) == 0 {
		took = r.amount()
	}
	switch kind {
	case schema.KindMemory:
		call := r.call(b, kind)
		if r.IntN(12) == 0 {
			ends := []schema.Op{schema.OpExec, schema.OpExec, schema.OpExec, schema.OpExit}
			call = b.Call(schema.CallRef{Op: ends[r.IntN(4)]})
		}
		b.AddMemory(&schema.Memory{Time: r.time(), Duration: took, Thread: r.thread(b), Call: call, GPU: r.gpu(b),
			Result: r.result(), Ptr: r.address(), Bytes: r.amount(), Aux: r.address(), Pool: r.address(),
			Context: []uint32{0, b.Context(schema.Context{Handle: r.address()})}[r.IntN(2)]})
	case schema.KindLaunch:
		f := b.Func(schema.Func{Name: []string{"", "k", "_Z1fv"}[r.IntN(3)], Handle: r.address()})
		if r.IntN(3) == 0 {
			b.Graph(schema.Graph{Func: f, Partial: r.IntN(2) == 0,
				Nodes: []schema.Node{{Func: f, Count: uint32(r.amount())}, {Func: f, Count: math.MaxUint32}}})
		}
		shape := b.Shape(schema.LaunchShape{Call: r.call(b, kind), Func: f, Grid: [3]uint32{uint32(r.amount()), 1, 1},
			Block: [3]uint32{math.MaxUint32, math.MaxUint32, uint32(r.amount())}})
		b.AddLaunch(&schema.Launch{Time: r.time(), Thread: r.thread(b), GPU: r.gpu(b), Shape: shape,
			CUDAStream: b.CUDAStream(r.address())})
	case schema.KindCopy:
		b.AddCopy(&schema.Copy{Time: r.time(), Duration: took, Thread: r.thread(b), Call: r.call(b, kind),
			GPU: r.gpu(b), Result: r.result(), Bytes: r.amount(), CUDAStream: b.CUDAStream(r.address()),
			HostMem: schema.HostMem(r.IntN(9))})
	case schema.KindSync:
		b.AddSync(&schema.Sync{Time: r.time(), Duration: took, Thread: r.thread(b), Call: r.call(b, kind),
			GPU: r.gpu(b), Result: r.result(), CUDAStream: b.CUDAStream(r.address()), CUDAEvent: r.address(),
			Elapsed: r.amount()})
	case schema.KindTensor:
		op := []schema.Op{schema.OpBlockAlloc, schema.OpBlockFree, schema.OpAlloc}[r.IntN(3)]
		b.AddTensor(&schema.Tensor{Time: r.time(), Thread: r.thread(b), Call: b.Call(schema.CallRef{Op: op}),
			GPU: r.gpu(b), Ptr: r.address(), Bytes: r.amount(), Allocated: r.amount(), Reserved: r.amount()})
	case schema.KindRank:
		b.AddRank(&schema.Rank{Time: r.time(), Duration: took, Thread: r.thread(b), Bytes: r.amount(),
			From: schema.Activity(r.IntN(int(schema.NumActivities))),
			To:   schema.Activity(r.IntN(int(schema.NumActivities))), Count: r.amount()})
	}
}
