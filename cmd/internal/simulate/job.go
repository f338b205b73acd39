package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

const (
	// ranks is the number of ranks of a job, each on a host of its own.
	ranks = 8
	// slowRank is the rank of the first job that Options.SlowRank slows.
	slowRank = 3
	// leakingRank is the rank of the first job that leaks Options.LeakRank.
	leakingRank = 5
	firstJob    = 1000

	launches     = 24           // of each rank in a training step
	stepEvents   = launches + 2 // with a copy and a wait
	leastStep    = schema.KTime(time.Millisecond)
	mostStep     = schema.KTime(time.Minute)
	simulatedGPU = 80 << 30 // bytes of a GPU whose size the recording does not have
	rankMemory   = 1 << 32  // address of the first block of a rank on host 0
	smallBlock   = 512      // alignment of its blocks, as the driver aligns them
	largeBlock   = 2 << 20  // alignment of those of 1 MiB and more
)

// rank makes the calls of one rank of a job. In each training step the ranks compute, and then wait for the slowest of
// them. So all ranks launch equally often, and a slow one waits less. Every rank draws the same random numbers for the
// job, so that ranks on different hosts agree on the end of each step.
type rank struct {
	number  int
	compute schema.KTime // of a step, without noise
	slow    float64      // by how much the slow rank computes longer; 0: no rank is slow
	leak    int64        // bytes that it allocates in a second and never frees
	random  *rand.Rand
	process schema.Process
	gpu     schema.GPU

	start   schema.KTime // of the next step, since the fleet's start
	memory  uint64       // end of the last block; 0: none yet
	pending []call       // that return in later windows
	maker   *maker       // of the present window; nil before the first
}

var (
	allocate = callOf("cuMemAlloc_v2")
	copyIn   = callOf("cuMemcpyHtoDAsync_v2")
	submit   = callOf("cuLaunchKernel")
	wait     = callOf("cuStreamSynchronize")
)

func callOf(symbol string) *schema.Call {
	return &schema.Calls[slices.IndexFunc(schema.Calls, func(c schema.Call) bool { return c.Symbol == symbol })]
}

// call is one event of a rank. Its times are since the fleet's start.
type call struct {
	*schema.Call
	at, took schema.KTime
	name     string // of the kernel
	bytes    uint64 // of memory or a copy
	ptr      uint64 // of memory
}

func (c *call) returned() schema.KTime { return c.at + c.took }

// rank returns the rank that a host has; nil for hosts without a job.
func (f *fleet) rank(host int) *rank {
	job := host / ranks
	if job >= f.Jobs {
		return nil
	}
	step := schema.KTime(stepEvents * float64(f.Hosts) / f.Rate * float64(time.Second))
	r := &rank{
		number: host % ranks, compute: min(max(step, leastStep), mostStep) * 4 / 5,
		random: rand.New(rand.NewPCG(f.Seed, 1<<32+uint64(job))), start: schema.KTime(f.BatchAge),
		process: schema.Process{
			PID: 1, UID: 1000, User: "sim", Comm: "python3", Exe: "/usr/bin/python3", Unit: "slurmstepd.scope",
			Cgroup: fmt.Sprintf("/system.slice/slurmstepd.scope/job_%d/step_0/user/task_%d", firstJob+job, host%ranks),
			Job:    fmt.Sprintf("slurm:%d.0", firstJob+job), Rank: uint32(1 + host%ranks), Ranks: ranks,
		},
		gpu: schema.GPU{UUID: gpuUUID("GPU", 0), Bytes: simulatedGPU},
	}
	if job == 0 {
		r.slow = f.SlowRank
		if r.number == leakingRank {
			r.leak = f.LeakRank
		}
	}
	return r
}

// life returns the calls that return within a window, as a life that begins at a time since the fleet's start. Without
// calls the life has no steps.
func (r *rank) life(begins, period schema.KTime) *life {
	if r.maker == nil {
		r.load(begins)
	}
	end := begins + period
	for r.start < end {
		r.train()
	}
	slices.SortStableFunc(r.pending, func(a, b call) int { return cmp.Compare(a.returned(), b.returned()) })
	n, _ := slices.BinarySearchFunc(r.pending, end, func(c call, end schema.KTime) int {
		return cmp.Compare(c.returned(), end)
	})
	r.maker.life = life{period: period}
	p := r.process
	p.Start -= begins // the host adds it
	for i := range r.pending[:n] {
		r.maker.call(&r.pending[i], &p, r.gpu, begins)
	}
	r.pending = slices.Delete(r.pending, 0, n)
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		r.maker.close(kind)
		r.maker.open[kind].due, r.maker.open[kind].last = 0, 0
	}
	r.maker.sort()
	return &r.maker.life
}

// load starts the program and adds its first calls.
func (r *rank) load(begins schema.KTime) {
	r.maker = &maker{}
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		r.maker.open[kind] = &openBatch{Builder: schema.NewBuilder(kind)}
	}
	r.process.Start = begins + 1
	at := begins + 2
	for range 8 {
		r.allocate(at, 1<<30)
		at += 2000
	}
}

// allocate adds a call that allocates memory behind all blocks before: a rank frees none.
func (r *rank) allocate(at schema.KTime, bytes uint64) {
	align := uint64(smallBlock)
	if bytes >= 1<<20 {
		align = largeBlock
	}
	ptr := (max(r.memory, rankMemory) + align - 1) &^ (align - 1)
	r.memory = ptr + bytes
	r.pending = append(r.pending, call{Call: allocate, at: at, took: 1000, bytes: bytes, ptr: ptr})
}

// train adds the calls of the next step: each rank computes for about the same time, and one in a hundred steps is
// disturbed on one rank.
func (r *rank) train() {
	var took [ranks]schema.KTime
	for i := range took {
		factor := 1 + min(max(0.02*r.random.NormFloat64(), -0.06), 0.06)
		if i == slowRank {
			factor *= 1 + r.slow
		}
		took[i] = schema.KTime(float64(r.compute) * factor)
	}
	if disturbed := r.random.IntN(100 * ranks); disturbed < ranks {
		took[disturbed] += r.compute / 2
	}
	own, end := took[r.number], slices.Max(took[:])+r.compute/4
	r.pending = append(r.pending, call{Call: copyIn, at: r.start, took: own / 100, bytes: 1 << 20})
	for i := range schema.KTime(launches) {
		name := "gemm"
		if i%8 == 7 {
			name = "ncclDevKernel_AllReduce"
		}
		r.pending = append(r.pending, call{Call: submit, at: r.start + own*(1+i)/(launches+2), name: name})
	}
	r.pending = append(r.pending, call{Call: wait, at: r.start + own, took: end - own})
	if leaked := uint64(float64(r.leak) * float64(end) / float64(time.Second)); leaked > 0 {
		r.allocate(r.start+own/50, leaked)
	}
	r.start += end
}

// call adds a call to the open batch of its kind. The batch is due when its last call returns.
func (m *maker) call(c *call, p *schema.Process, gpu schema.GPU, begins schema.KTime) {
	o := m.open[c.Kind]
	if o.Events() >= batchEvents {
		m.close(c.Kind)
	}
	o.last = max(o.last, c.returned()-begins)
	at, ref := c.at-begins, o.Call(c.Ref())
	thread := o.Thread(schema.Thread{Process: o.Process(*p), TID: p.PID, Comm: p.Comm})
	on := o.GPU(gpu)
	switch c.Kind {
	case schema.KindMemory:
		o.AddMemory(&schema.Memory{
			Time: at, Duration: uint64(c.took), Thread: thread, GPU: on, Call: ref, Bytes: c.bytes, Ptr: c.ptr,
		})
	case schema.KindLaunch:
		shape := o.Shape(schema.LaunchShape{
			Call: ref, Func: o.Func(schema.Func{Name: c.name}), Grid: [3]uint32{132, 1, 1}, Block: [3]uint32{256, 1, 1},
		})
		o.AddLaunch(&schema.Launch{Time: at, Thread: thread, GPU: on, Shape: shape, CUDAStream: o.CUDAStream(0)})
	case schema.KindCopy:
		o.AddCopy(&schema.Copy{
			Time: at, Duration: uint64(c.took), Thread: thread, GPU: on, Call: ref, Bytes: c.bytes,
			CUDAStream: o.CUDAStream(0),
		})
	case schema.KindSync:
		o.AddSync(&schema.Sync{
			Time: at, Duration: uint64(c.took), Thread: thread, GPU: on, Call: ref, CUDAStream: o.CUDAStream(0),
		})
	}
}
