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

// planted is a host with a program for each rule about processes. Its batches are those of windows of ten seconds.
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

// programs are those of planted, by what they do.
type programs struct {
	leaker, sizer, oomer, holder, recoverer, allocator, launcher, copier, pager, ender *consumertest.Process

	sized uint64   // what sizer holds
	ended []uint64 // what ender holds
}

// plant publishes the events of programs that each rule finds, and returns the findings.
func plant(t *testing.T, p *published) []naive.Finding {
	h := hosted(t, p, "gpu")
	all := &programs{
		leaker: h.program(11, "leaker", "GPU-L"), sizer: h.program(12, "sizer", "GPU-S"),
		oomer: h.program(13, "oomer", "GPU-O"), holder: h.program(14, "holder", "GPU-O"),
		recoverer: h.program(15, "recoverer", "GPU-R"), allocator: h.program(16, "allocator", "GPU-A"),
		launcher: h.program(17, "launcher", ""), copier: h.program(18, "copier", "GPU-C"),
		pager: h.program(19, "pager", ""), ender: h.program(20, "ender", "GPU-U"),
	}
	h.at = begins
	for w := range 190 {
		h.allocations(all, w)
		h.failures(all, w)
		h.rates(all, w)
		h.send(schema.KindMemory, nil)
		h.heartbeat()
	}
	return append(findings(), plantLoss(t, p)...)
}

// allocations of window w: one program leaks, one makes a large allocation, and one ends without all its frees.
func (h *planted) allocations(all *programs, w int) {
	if w%3 == 0 {
		h.alloc(all.leaker, 16*mib, 1)
	}
	if w%10 == 5 && w < 150 {
		if all.sized > 0 {
			all.sizer.Free(12, all.sized, h.at+1e6, 1)
		}
		all.sized = h.alloc(all.sizer, uint64(1+w%4)*mib, 2)
	}
	switch w {
	case 120:
		for i := range schema.KTime(13) {
			all.ended = append(all.ended, h.alloc(all.ender, 100*mib, 3+i))
		}
	case 180:
		h.alloc(all.sizer, 2*gib, 20)
	case 183:
		for i, ptr := range all.ended[:8] {
			all.ender.Free(20, ptr, h.at+30e6+schema.KTime(i), 1)
		}
		all.ender.Exit(h.at + 40e6)
	}
}

// failures of window w: one program runs out of memory, and one recovers.
func (h *planted) failures(all *programs, w int) {
	switch w {
	case 50:
		h.alloc(all.holder, 5*gib, 3)
	case 60:
		h.alloc(all.oomer, 3*gib, 3)
	case 175:
		for i, bytes := range []uint64{2 * gib, 3 * gib, gib} {
			all.oomer.Fail("cuMemAlloc_v2", 13, 2, bytes, h.at+schema.KTime(1+i)*1e9)
		}
	case 187:
		all.recoverer.Fail("cuMemAlloc_v2", 15, 2, gib, h.at+1e9)
		h.alloc(all.recoverer, gib, 3500)
	}
}

// rates of window w: programs begin to allocate more, to launch less and to copy more slowly.
func (h *planted) rates(all *programs, w int) {
	if w < 100 {
		return
	}
	calls, kernels, took := schema.KTime(3+w%4), uint32(2000+w%5), uint64(2_500_000)
	if w >= 165 {
		kernels = uint32(300 + w%7)
	}
	if w >= 183 {
		took = 5_000_000
	}
	if w >= 184 {
		calls = 1100
	}
	for i := range calls {
		at := h.at + 5e9 + i*1e6
		all.allocator.Alloc(16, 1<<20, 4096, at, 1).Free(16, 1<<20, at+9, 1)
	}
	h.launch(all.launcher, kernels)
	if w < 150 {
		return
	}
	b := schema.NewBuilder(schema.KindCopy)
	h.copies(b, all.copier, 40, 0, took)
	if w >= 155 {
		h.copies(b, all.pager, 5, 20, took)
	}
	h.send(schema.KindCopy, b)
}

// findings are those of plant.
func findings() []naive.Finding {
	at := func(w schema.KTime) schema.KTime { return begins + w*window }
	info := func(rule string, pid uint32, gpu string, from, to schema.KTime) naive.Finding {
		return naive.Finding{Rule: rule, Severity: "info", Host: "gpu", PID: pid, GPU: gpu, From: from, At: to}
	}
	list := []naive.Finding{
		info("alloc_size", 12, "GPU-S", at(180)+20e6+500, at(184)),
		info("oom", 13, "GPU-O", at(175)+1e9+1, at(177)),
		info("leak_growth", 11, "GPU-L", 120e9, 1920e9),
		info("oom_recovered", 15, "GPU-R", at(187)+1e9+1, at(187)+3500e6+500),
		info("alloc_rate", 16, "", at(184), at(187)),
		info("launch_collapse", 17, "", at(165), at(183)),
		info("copy_regression", 18, "GPU-C", at(183), at(186)),
		info("pageable_copies", 19, "", at(155), at(185)),
		info("unfreed_at_exit", 20, "GPU-U", at(183)+40e6, at(183)+40e6),
	}
	list[0].Severity, list[1].Severity, list[2].Severity = "warning", "critical", "warning"
	return list
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
	return []naive.Finding{{Rule: "telemetry_loss", Severity: "warning", Host: "lossy", From: h.at, At: h.at}}
}
