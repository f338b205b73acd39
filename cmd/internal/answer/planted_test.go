package answer_test

import (
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/naive"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	mib    = uint64(1) << 20
	gib    = uint64(1) << 30
	begins = schema.KTime(100e9) // of the first window of planted
	window = schema.KTime(10e9)
)

// planted is a host with a program for each rule. Its batches are those of windows of ten seconds.
type planted struct {
	*consumertest.Host
	t       *testing.T
	p       *published
	at      schema.KTime // begin of the window
	seqs    map[schema.Kind]uint64
	address uint64
}

// hosted returns a host whose first window is near the present.
func hosted(t *testing.T, p *published, name string) *planted {
	h := consumertest.Memory(t, name)
	h.Header.Cluster = "east"
	h.Header.ClockOffset = time.Now().Add(-40*time.Minute).UnixNano() - int64(begins)
	return &planted{Host: h, t: t, p: p, seqs: map[schema.Kind]uint64{}}
}

func (h *planted) program(pid uint32, comm, gpu string) *consumertest.Process {
	p := h.Process(pid, begins-1e9, comm)
	p.User, p.UID = "ann", 1000+pid
	if gpu != "" {
		p.GPU = &schema.GPU{UUID: gpu, Bytes: 80 * gib}
	}
	return p
}

// alloc allocates at a new address, after so many milliseconds of the window.
func (h *planted) alloc(p *consumertest.Process, bytes uint64, ms schema.KTime) (ptr uint64) {
	h.address += 1 << 36
	p.Alloc(p.PID+1, h.address, bytes, h.at+ms*1e6, 500)
	return h.address
}

// send publishes the batch of a kind; nil: the one of memory.
func (h *planted) send(kind schema.Kind, b *schema.Builder) {
	var message []byte
	if b == nil {
		message = h.Message()
		h.seqs[kind] = h.Header.Seq
	} else {
		h.seqs[kind]++
		header := h.Header
		header.Seq = h.seqs[kind]
		message = b.Encode(&header)
	}
	h.p.store(h.t, 0, schema.Subject(0, "east", h.Header.Host, kind), message)
}

// heartbeat ends the window.
func (h *planted) heartbeat() {
	h.at += window
	b := schema.NewBuilder(schema.KindHost)
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync,
		schema.KindTensor} {
		b.Ends = append(b.Ends, schema.End{Kind: kind, Seq: h.seqs[kind], Through: h.at})
	}
	h.send(schema.KindHost, b)
}

func threadOf(b *schema.Builder, p *consumertest.Process) (thread, gpu uint32) {
	if p.GPU != nil {
		gpu = b.GPU(*p.GPU)
	}
	return b.Thread(schema.Thread{Process: b.Process(p.Process), TID: p.PID, Comm: p.Comm}), gpu
}

// launch launches a graph of n kernels.
func (h *planted) launch(p *consumertest.Process, n uint32) {
	b := schema.NewBuilder(schema.KindLaunch)
	f := b.Func(schema.Func{Handle: 9})
	b.Graph(schema.Graph{Func: f, Nodes: []schema.Node{{Func: b.Func(schema.Func{Name: "k"}), Count: n}}})
	shape := b.Shape(schema.LaunchShape{Func: f,
		Call: b.Call(schema.CallRef{Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch})})
	thread, gpu := threadOf(b, p)
	b.AddLaunch(&schema.Launch{Time: h.at + 1, Thread: thread, GPU: gpu, Shape: shape, CUDAStream: b.CUDAStream(0)})
	h.send(schema.KindLaunch, b)
}

// copies makes n copies of 20 MB from pinned memory, and m from pageable memory.
func (h *planted) copies(b *schema.Builder, p *consumertest.Process, n, m int, took uint64) {
	thread, gpu := threadOf(b, p)
	call := b.Call(schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: schema.HtoD})
	for i := range n + m {
		memory := schema.HostMemPinned
		if i >= n {
			memory = schema.HostMemPageable
		}
		b.AddCopy(&schema.Copy{Time: h.at + schema.KTime(i)*1e6, Duration: took, Thread: thread, GPU: gpu, Call: call,
			Bytes: 20e6, HostMem: memory, CUDAStream: b.CUDAStream(0)})
	}
}

// plant publishes the events of programs that each rule finds, and returns the findings.
func plant(t *testing.T, p *published) []naive.Finding {
	h := hosted(t, p, "gpu")
	leaker, sizer, oomer := h.program(11, "leaker", "GPU-L"), h.program(12, "sizer", "GPU-S"), h.program(13, "oomer", "GPU-O")
	holder, recoverer := h.program(14, "holder", "GPU-O"), h.program(15, "recoverer", "GPU-R")
	allocator, launcher := h.program(16, "allocator", "GPU-A"), h.program(17, "launcher", "")
	copier, pager, ender := h.program(18, "copier", "GPU-C"), h.program(19, "pager", ""), h.program(20, "ender", "GPU-U")
	var ended []uint64
	sized := uint64(0)
	h.at = begins
	for w := range 190 {
		if w%3 == 0 {
			h.alloc(leaker, 16*mib, 1)
		}
		if w%10 == 5 && w < 150 {
			if sized > 0 {
				sizer.Free(12, sized, h.at+1e6, 1)
			}
			sized = h.alloc(sizer, uint64(1+w%4)*mib, 2)
		}
		switch w {
		case 50:
			h.alloc(holder, 5*gib, 3)
		case 60:
			h.alloc(oomer, 3*gib, 3)
		case 120:
			for i := range schema.KTime(13) {
				ended = append(ended, h.alloc(ender, 100*mib, 3+i))
			}
		case 175:
			for i, bytes := range []uint64{2 * gib, 3 * gib, gib} {
				oomer.Fail("cuMemAlloc_v2", 13, 2, bytes, h.at+schema.KTime(1+i)*1e9)
			}
		case 180:
			h.alloc(sizer, 2*gib, 20)
		case 183:
			for i, ptr := range ended[:8] {
				ender.Free(20, ptr, h.at+30e6+schema.KTime(i), 1)
			}
			ender.Exit(h.at + 40e6)
		case 187:
			recoverer.Fail("cuMemAlloc_v2", 15, 2, gib, h.at+1e9)
			h.alloc(recoverer, gib, 3500)
		}
		if w >= 100 {
			calls := schema.KTime(3 + w%4)
			if w >= 184 {
				calls = 1100
			}
			for i := range calls {
				at := h.at + 5e9 + i*1e6
				allocator.Alloc(16, 1<<20, 4096, at, 1).Free(16, 1<<20, at+9, 1)
			}
			kernels := uint32(2000 + w%5)
			if w >= 165 {
				kernels = uint32(300 + w%7)
			}
			h.launch(launcher, kernels)
		}
		if w >= 150 {
			b, took := schema.NewBuilder(schema.KindCopy), uint64(2_500_000)
			if w >= 183 {
				took = 5_000_000
			}
			h.copies(b, copier, 40, 0, took)
			if w >= 155 {
				h.copies(b, pager, 5, 20, took)
			}
			h.send(schema.KindCopy, b)
		}
		h.send(schema.KindMemory, nil)
		h.heartbeat()
	}
	return append(findings(), plantLoss(t, p)...)
}

// findings are those of plant.
func findings() []naive.Finding {
	at := func(w schema.KTime) schema.KTime { return begins + w*window }
	return []naive.Finding{
		{Rule: "alloc_size", Severity: "warning", Host: "gpu", PID: 12, GPU: "GPU-S", From: at(180) + 20e6 + 500, At: at(184)},
		{Rule: "oom", Severity: "critical", Host: "gpu", PID: 13, GPU: "GPU-O", From: at(175) + 1e9 + 1, At: at(177)},
		{Rule: "oom_recovered", Severity: "info", Host: "gpu", PID: 15, GPU: "GPU-R", From: at(187) + 1e9 + 1, At: at(187) + 3500e6 + 500},
		{Rule: "alloc_rate", Severity: "info", Host: "gpu", PID: 16, GPU: "", From: at(184), At: at(187)},
		{Rule: "launch_collapse", Severity: "info", Host: "gpu", PID: 17, GPU: "", From: at(165), At: at(183)},
		{Rule: "copy_regression", Severity: "info", Host: "gpu", PID: 18, GPU: "GPU-C", From: at(183), At: at(186)},
		{Rule: "pageable_copies", Severity: "info", Host: "gpu", PID: 19, GPU: "", From: at(155), At: at(185)},
		{Rule: "unfreed_at_exit", Severity: "info", Host: "gpu", PID: 20, GPU: "GPU-U", From: at(183) + 40e6, At: at(183) + 40e6},
		{Rule: "leak_growth", Severity: "warning", Host: "gpu", PID: 11, GPU: "GPU-L", From: 120e9, At: 1920e9},
	}
}

// plantLoss publishes the events of a host that loses some.
func plantLoss(t *testing.T, p *published) []naive.Finding {
	h := hosted(t, p, "lossy")
	program := h.program(21, "loser", "")
	h.at = begins
	for w := range 10 {
		for i := range schema.KTime(5 + w) {
			program.Free(21, 0, h.at+i, 1)
		}
		if w == 9 {
			h.Header.Lost[schema.LossControlRing], h.Header.Lost[schema.LossSpool] = 70, 30
			h.Header.Seq += 2 // batches are missing
		}
		h.send(schema.KindMemory, nil)
		h.heartbeat()
	}
	return []naive.Finding{{Rule: "telemetry_loss", Severity: "warning", Host: "lossy", PID: 0, GPU: "", From: h.at, At: h.at}}
}
