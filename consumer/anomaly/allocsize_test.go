package anomaly

import (
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	odd     = "alloc_size warning" + firing
	oddGone = "alloc_size warning" + cleared
)

// allocs adds n allocations of so many bytes, one every tenth of a second.
func (w *world) allocs(p *consumertest.Process, n int, bytes uint64, from float64) {
	for i := range n {
		w.alloc(p, bytes, from+float64(i)/10)
	}
}

// Programs with one allocation that dwarfs everything before it.
func TestOddAllocationIsFound(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{
		{"the seed with 16 allocations before", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 16, 10*mb, 2)
			w.alloc(p, 2096*mib, 4)
			w.allocs(p, 20, 10*mb, 5)
			w.tick(10, 60)
		}, []string{odd}},
		{"the seed with 17 allocations of up to 16 MiB", everything, func(w *world, p *consumertest.Process) {
			for i := range 17 {
				w.alloc(p, []uint64{10 * mib, 16 * mib, 2 * mib}[i%3], 2+float64(i)/10)
			}
			w.alloc(p, 2096*mib, 4)
			w.tick(10, 60)
		}, []string{odd}},
		{"the process ends a moment later", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 10, 10*mb, 2)
			w.alloc(p, 2096*mib, 4)
			p.Exit(ktime(5))
			w.tick(10, 60)
		}, []string{odd, oddGone}},
		{"physical memory, and then it is released", everything, func(w *world, p *consumertest.Process) {
			for i := range uint64(12) {
				p.Create(1, 100+i, 20*mib, ktime(2), 1)
			}
			p.Create(1, 7, 8*gib, ktime(4), 1)
			w.tick(10, 40)
			p.Release(1, 7, ktime(45), 1)
			w.tick(50, 50)
		}, []string{odd, oddGone}},
		{"a larger one follows on another GPU", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 20, 10*mib, 2)
			first := w.alloc(p, 2*gib, 10)
			w.tick(20, 60)
			p.GPU = &schema.GPU{UUID: "GPU-2", Ordinal: 1, Bytes: 80 * gib}
			w.alloc(p, 30*gib, 61)
			w.tick(70, 120)
			p.Free(p.PID, first, ktime(121), 5)
			w.tick(130, 140)
		}, []string{odd, odd, oddGone}},
		{"a program that frees and allocates all the time", everything, func(w *world, p *consumertest.Process) {
			for i := range 2000 {
				p.Free(1, w.alloc(p, 10*mib, 2+float64(i)/100), ktime(2.001+float64(i)/100), 1)
			}
			p.Free(1, w.alloc(p, 2*gib, 22), ktime(22.5), 1)
			for i := range 2000 {
				p.Free(1, w.alloc(p, 10*mib, 23+float64(i)/100), ktime(23.001+float64(i)/100), 1)
			}
			w.tick(10, 60)
		}, []string{odd, oddGone}},
		{"a caching allocator with two segments, after 30 windows of work", everything,
			func(w *world, p *consumertest.Process) {
				w.allocs(p, 2, 20*mib, 2)
				w.alloc(p, 2*gib, w.phases(p, phase{31, 1000, 0})+1)
				w.tick(340, 400)
			}, []string{odd}},
		{"a pool of the driver, small allocations before", everything, func(w *world, p *consumertest.Process) {
			for i := range uint64(40) {
				p.AllocPool(1, 1<<30+i<<20, 4096, 0, ktime(2))
			}
			p.AllocPool(1, 1<<40, gib, 0, ktime(3))
			w.tick(10, 60)
		}, []string{odd}},
	} {
		s.test(t)
	}
}

// Programs that grow in steps as ordinary frameworks do.
func TestOrdinaryGrowthIsNotOdd(t *testing.T) {
	t.Parallel()
	late := only(func(c *rule.Config) { c.AllocSize.Mode = rule.Alert })
	for _, s := range []scenario{
		{"weights and then a KV cache", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 64, 20*mib, 2)
			w.allocs(p, 32, 1536*mib, 20)
			w.tick(10, 90)
		}, nil},
		{"a KV cache of one block for each layer, seconds apart", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 64, 20*mib, 2)
			for i := range 30 {
				w.alloc(p, 2*gib, 20+5*float64(i))
			}
			w.tick(10, 300)
		}, nil},
		{"segments of PyTorch's allocator", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 6, 2*mib, 2)
			w.allocs(p, 8, 20*mib, 3)
			for i, bytes := range []uint64{300, 640, 640, 1280, 320, 2560} {
				w.alloc(p, bytes*mib, 5+3*float64(i))
			}
			w.tick(10, 90)
		}, nil},
		{"expandable segments", everything, func(w *world, p *consumertest.Process) {
			for i := range uint64(500) {
				p.Create(1, 100+i, []uint64{2 * mib, 20 * mib}[min(i/6, 1)], ktime(2+float64(i)/50), 1)
			}
			w.tick(10, 60)
		}, nil},
		{"a framework that takes 75 % of the GPU first", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 7, 2*mib, 2)
			w.alloc(p, 60*gib, 3)
			w.allocs(p, 20, 2*mib, 4)
			w.tick(10, 60)
		}, nil},
		{"a framework that takes 75 % of the GPU late", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 40, 20*mib, 2)
			w.alloc(p, 60*gib, 8)
			w.tick(10, 60)
		}, nil},
		{"an allocator that doubles", everything, func(w *world, p *consumertest.Process) {
			for i := range 14 {
				w.alloc(p, 2*mib<<i, 2+float64(20*i))
			}
			w.tick(10, 400)
		}, nil},
		{"one block in a process that holds far more", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 200, 20*mib, 2)
			w.alloc(p, 2*gib, 30)
			w.tick(10, 90)
		}, nil},
		{"a block, and then growth by small ones", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 12, 20*mib, 2)
			w.alloc(p, gib, 5)
			w.allocs(p, 30, 20*mib, 6)
			w.tick(10, 60)
		}, nil},
		{"a workspace that is freed and allocated again", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 12, 20*mib, 2)
			for i := range 10 {
				p.Free(1, w.alloc(p, 2*gib, 5+3*float64(i)), ktime(6+3*float64(i)), 1)
			}
			w.tick(10, 90)
		}, nil},
		{"host memory", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 16, 10*mb, 2)
			p.Call("cuMemHostAlloc", 1, schema.Memory{Time: ktime(5), Ptr: 1 << 20, Bytes: 8 * gib})
			w.tick(10, 60)
		}, nil},
		{"half a GiB less a byte", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 16, 10*mb, 2)
			w.alloc(p, 512*mib-1, 4)
			w.tick(10, 60)
		}, nil},
		{"nine allocations before", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 9, 10*mb, 2)
			w.alloc(p, 2096*mib, 4)
			w.tick(10, 60)
		}, nil},
		{"two allocations before, and 28 windows of work", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 2, 20*mib, 2)
			w.alloc(p, 2*gib, w.phases(p, phase{28, 1000, 0})+1)
			w.tick(310, 400)
		}, nil},
		{"two allocations before, and 31 windows without work", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 2, 20*mib, 2)
			w.tick(10, 330)
			w.alloc(p, 2*gib, 331)
			w.tick(340, 400)
		}, nil},
		{"an image that replaced another", everything, func(w *world, p *consumertest.Process) {
			w.allocs(p, 16, 10*mb, 2)
			p.Exec("other", ktime(5))
			w.alloc(p, 2096*mib, 6)
			w.tick(10, 60)
		}, nil},
		{"a process that ran before gputap", late, func(w *world, p *consumertest.Process) {
			p.Late = true
			w.allocs(p, 15, 10*mb, 2)
			w.tick(10, 10)
			p.Late = false
			w.allocs(p, 15, 10*mb, 12)
			w.alloc(p, 2096*mib, 16)
			w.tick(20, 60)
		}, nil},
		{"events were lost before", late, func(w *world, p *consumertest.Process) {
			w.allocs(p, 16, 10*mb, 2)
			w.flush()
			w.d.Lost("test", "gpu-01", "boot-1", 1)
			w.alloc(p, 2096*mib, 6)
			w.tick(10, 60)
		}, nil},
		{"events were lost after", late, func(w *world, p *consumertest.Process) {
			w.allocs(p, 16, 10*mb, 2)
			w.alloc(p, 2096*mib, 6)
			w.flush()
			w.host.Header.Lost[schema.LossControlRing]++
			w.tick(10, 60)
		}, nil},
	} {
		s.test(t)
	}
}

// Processes that began after a loss are judged as usual.
func TestGapDoesNotConcernLaterProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, only(func(c *rule.Config) { c.AllocSize.Mode = rule.Alert }))
	w.allocs(w.process(41, "other"), 1, mib, 2)
	w.flush()
	w.d.Lost("test", "gpu-01", "boot-1", 1)
	for _, test := range []struct {
		pid   uint32
		start float64
	}{{42, 3.5}, {43, 2.5}} { // the second may have allocated before
		p := w.process(test.pid, "train")
		p.Start = ktime(test.start)
		w.allocs(p, 16, 10*mb, test.start+0.5)
		w.alloc(p, 2096*mib, 6)
	}
	w.tick(10, 60)
	w.want(odd)
}

// A fold that begins in the middle of a stream knows nothing of the allocations before.
func TestBeginInTheMiddleOfAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	w.d.Lost("test", "gpu-01", "boot-1", 99)
	for _, test := range []struct {
		pid   uint32
		start float64
	}{{42, 1}, {43, 101}} {
		p := w.process(test.pid, "train")
		p.Start = ktime(test.start)
		w.allocs(p, 16, 10*mb, 101)
		w.flush()
		w.allocs(p, 16, 10*mb, 103)
		w.alloc(p, 2096*mib, 106)
	}
	w.tick(110, 160)
	w.want("alloc_size warning firing 43")
}

func TestAllocSizeSettings(t *testing.T) {
	t.Parallel()
	seed := func(w *world, p *consumertest.Process) {
		p.User, p.Job = "ann", "slurm:17"
		w.allocs(p, 16, 10*mb, 2)
		w.alloc(p, 2096*mib, 4)
		w.tick(10, 60)
	}
	for _, s := range []scenario{
		{"mode observe", rule.Config{Mode: rule.Observe}, seed, []string{"alloc_size info" + firing}},
		{"mode off", rule.Config{Mode: rule.Off}, seed, nil},
		{"its own mode", rule.Config{AllocSize: rule.AllocSize{Mode: rule.Observe}}, seed,
			[]string{"alloc_size info" + firing}},
		{"warm-up", rule.Config{Warmup: time.Minute}, seed, nil},
		{"the command is excluded", rule.Config{Exclude: alert.Exclude{Comm: []string{"x", "tr*"}}}, seed, nil},
		{"the user is excluded", rule.Config{Exclude: alert.Exclude{User: []string{"ann"}}}, seed, nil},
		{"the job is excluded", rule.Config{Exclude: alert.Exclude{Job: []string{"slurm:*"}}}, seed, nil},
		{"excluded from this rule", rule.Config{Exclude: alert.Exclude{Comm: []string{"alloc_size=train"}}}, seed, nil},
		{"excluded from another rule", rule.Config{Exclude: alert.Exclude{Comm: []string{"oom=train"}}}, seed,
			[]string{odd}},
		{"a larger minimum", rule.Config{AllocSize: rule.AllocSize{MinBytes: 4 * gib}}, seed, nil},
		{"a longer hold", rule.Config{AllocSize: rule.AllocSize{Hold: time.Minute}}, seed, nil},
		{"a larger factor", rule.Config{AllocSize: rule.AllocSize{Factor: 1000}}, seed, nil},
		{"more allocations before", rule.Config{AllocSize: rule.AllocSize{Allocations: 17}}, seed, nil},
	} {
		s.test(t)
	}
}
