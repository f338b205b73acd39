package consumertest

import (
	"fmt"
	"testing"

	"github.com/gputap/gputap/schema"
)

// Crowd returns steps of 2,160 programs with distinct names on three hosts: more workloads than a metric family has
// series. Every twentieth program ends.
func Crowd(tb testing.TB) (steps []Step) {
	const rounds, programs = 3, 240
	for host := range uint32(3) {
		h := Memory(tb, fmt.Sprintf("host-%d", host))
		for round := range uint32(rounds) {
			launches, copies, syncs := schema.NewBuilder(schema.KindLaunch), schema.NewBuilder(schema.KindCopy),
				schema.NewBuilder(schema.KindSync)
			at := schema.KTime(1000 + round)
			for i := range uint32(programs) {
				p := h.Process(1000+round*programs+i, 1, fmt.Sprintf("job-%d-%d-%d", host, round, i))
				p.Alloc(1, 0x1000, uint64(i), at, 1).Fail("cuMemAlloc_v2", 1, 2, 1<<40, at).Free(1, 0x9000, at, 1)
				launch(launches, p, at)
				copies.AddCopy(&schema.Copy{Time: at, Duration: 5, Bytes: 7, Thread: thread(copies, p),
					CUDAStream: copies.CUDAStream(0), Call: copies.Call(
						schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: schema.HtoD})})
				syncs.AddSync(&schema.Sync{Time: at, Duration: 3, Thread: thread(syncs, p),
					CUDAStream: syncs.CUDAStream(0),
					Call:       syncs.Call(schema.CallRef{Symbol: "cuCtxSynchronize", Op: schema.OpSync})})
				if i%20 == 0 {
					p.Exit(at)
				}
			}
			steps = append(steps, Steps(h.Message(), launches.Encode(&h.Header),
				copies.Encode(&h.Header), syncs.Encode(&h.Header))...)
		}
	}
	return steps
}

func thread(b *schema.Builder, p *Process) uint32 {
	return b.Thread(schema.Thread{Process: b.Process(p.Process), TID: p.PID, Comm: p.Comm})
}

func launch(b *schema.Builder, p *Process, at schema.KTime) {
	call := b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})
	shape := b.Shape(schema.LaunchShape{Call: call, Func: b.Func(schema.Func{Name: "k"}), Grid: [3]uint32{1, 1, 1},
		Block: [3]uint32{32, 1, 1}})
	b.AddLaunch(&schema.Launch{Time: at, Thread: thread(b, p), Shape: shape, CUDAStream: b.CUDAStream(0)})
}
