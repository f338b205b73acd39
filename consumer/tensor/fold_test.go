package tensor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/schema"
)

const (
	reportSymbol = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
	offset       = 1_700_000_000e9
)

// host builds the tensor batches of one host.
type host struct {
	schema.Header
	b *schema.Builder
}

func newHost() *host {
	return &host{
		Header: schema.Header{Cluster: "c", Host: "h", BootID: "boot-1", Run: 1, ClockOffset: offset},
		b:      schema.NewBuilder(schema.KindTensor),
	}
}

// report is one report of an allocator. Negative bytes are a free.
type report struct {
	pid, tid, gpu       uint32
	at                  schema.KTime
	ptr                 uint64
	bytes               int64
	allocated, reserved uint64
}

func (h *host) add(r report) *host {
	e := schema.Tensor{
		Time: r.at, Ptr: r.ptr, Bytes: uint64(r.bytes), Allocated: r.allocated, Reserved: r.reserved,
		GPU: h.b.GPU(schema.GPU{UUID: fmt.Sprint("GPU-", r.gpu), Ordinal: r.gpu}),
		Thread: h.b.Thread(schema.Thread{
			Process: h.b.Process(schema.Process{PID: r.pid, Start: 5, Comm: "python"}), TID: r.tid,
			Comm: fmt.Sprint("thread-", r.tid),
		}),
	}
	op := schema.OpBlockAlloc
	if r.bytes < 0 {
		op, e.Bytes = schema.OpBlockFree, uint64(-r.bytes)
	}
	e.Call = h.b.Call(schema.CallRef{Symbol: reportSymbol, Op: op})
	h.b.AddTensor(&e)
	return h
}

// send applies the reports that were added since the last send.
func (h *host) send(t testing.TB, f *tensor.Fold) {
	t.Helper()
	h.Seq++
	data := h.b.Encode(&h.Header)
	h.b.Reset()
	apply(t, f, data)
}

func apply(t testing.TB, f *tensor.Fold, data []byte) {
	t.Helper()
	if err := f.Apply(consumertest.Decode(t, data)); err != nil {
		t.Fatal(err)
	}
}

// memory returns a memory batch of the same host with one event: exec or exit.
func (h *host) end(t testing.TB, symbol string, pid uint32, at schema.KTime) []byte {
	m := consumertest.Memory(t, "h")
	m.Header = h.Header
	p := m.Process(pid, 5, "python")
	if symbol == "exit" {
		p.Exit(at)
	} else {
		p.Exec("python", at)
	}
	return m.Message()
}

func only(t testing.TB, f *tensor.Fold) tensor.Process {
	t.Helper()
	all := f.Report(20)
	if len(all) != 1 {
		t.Fatalf("%d processes, want 1", len(all))
	}
	return all[0]
}

// allocator is an independent model of PyTorch's allocator on one GPU.
type allocator struct {
	live                map[uint64]held
	allocated, reserved uint64
	peak, peakReserved  uint64
	peakAt              schema.KTime
}

type held struct {
	bytes uint64
	tid   uint32
	at    schema.KTime
}

// TestTotalsAndBlocksAgree: the totals come from the arguments of the reports and the blocks from pairing. Both equal a
// model of the allocators, and each other, after every batch.
func TestTotalsAndBlocksAgree(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	f, h := tensor.New(tensor.Config{}), newHost()
	type key struct{ pid, gpu uint32 }
	truth := map[key]*allocator{}
	now := schema.KTime(1000)
	for range 60 {
		for range 500 {
			now += 1 + schema.KTime(rng.Uint64N(1000))
			k := key{10 + rng.Uint32N(3), rng.Uint32N(2)}
			a := truth[k]
			if a == nil {
				a = &allocator{live: map[uint64]held{}}
				truth[k] = a
			}
			h.add(a.step(rng, k.pid, k.gpu, now))
		}
		h.send(t, f)
		found := 0
		for _, p := range f.Report(20) {
			for _, g := range p.GPUs {
				found++
				compare(t, &p, &g, truth[key{p.ID.PID, uint32(g.Ordinal)}])
			}
			if p.Evidence != "complete" || p.Ended {
				t.Errorf("process %d: evidence %s, ended %v", p.ID.PID, p.Evidence, p.Ended)
			}
		}
		if found != len(truth) {
			t.Fatalf("%d allocators, want %d", found, len(truth))
		}
	}
}

// step makes one report.
func (a *allocator) step(rng *rand.Rand, pid, gpu uint32, now schema.KTime) report {
	r := report{pid: pid, gpu: gpu, tid: 1 + rng.Uint32N(4), at: now}
	r.ptr = 1<<40 + uint64(gpu)<<36 + rng.Uint64N(400)<<21
	if b, known := a.live[r.ptr]; known {
		delete(a.live, r.ptr)
		a.allocated -= b.bytes
		r.bytes = -int64(b.bytes)
	} else {
		bytes := (1 + rng.Uint64N(1<<rng.Uint64N(21))) * 512
		a.live[r.ptr] = held{bytes, r.tid, now}
		a.allocated += bytes
		r.bytes = int64(bytes)
	}
	a.reserved = max(a.reserved, (a.allocated+1<<21)&^(1<<21-1))
	if a.allocated > a.peak {
		a.peak, a.peakAt = a.allocated, now
	}
	a.peakReserved = max(a.peakReserved, a.reserved)
	r.allocated, r.reserved = a.allocated, a.reserved
	return r
}

func compare(t *testing.T, p *tensor.Process, g *tensor.GPU, want *allocator) {
	t.Helper()
	got := fmt.Sprint(g.UUID, g.Allocated, g.Reserved.Bytes, g.Reserved.Peak, g.Cached(), g.Blocks, g.BlockBytes,
		g.UnmatchedFrees, g.Replaced)
	expected := fmt.Sprint(fmt.Sprint("GPU-", g.Ordinal), tensor.Level{Bytes: want.allocated, Peak: want.peak,
		PeakAt: time.Unix(0, offset+int64(want.peakAt)).UTC()}, want.reserved, want.peakReserved,
		want.reserved-want.allocated, len(want.live), want.allocated, 0, 0)
	if got != expected {
		t.Fatalf("process %d: %s, want %s", p.ID.PID, got, expected)
	}
	var largest []tensor.Block
	for ptr, b := range want.live {
		largest = append(largest, tensor.Block{Ptr: ptr, Bytes: b.bytes, TID: b.tid, Comm: fmt.Sprint("thread-", b.tid),
			At: time.Unix(0, offset+int64(b.at)).UTC()})
	}
	slices.SortFunc(largest, func(a, b tensor.Block) int {
		if a.Bytes != b.Bytes {
			return int(int64(b.Bytes) - int64(a.Bytes))
		}
		return a.At.Compare(b.At)
	})
	if largest = largest[:min(20, len(largest))]; !slices.Equal(g.Largest, largest) {
		t.Fatalf("process %d: the largest blocks are\n%v\nwant\n%v", p.ID.PID, g.Largest, largest)
	}
}

// summary describes the only process in one line.
func summary(t testing.TB, f *tensor.Fold) string {
	p := only(t, f)
	var w strings.Builder
	fmt.Fprintf(&w, "%s", p.Evidence)
	if p.Ended {
		w.WriteString(" ended")
	}
	for _, g := range p.GPUs {
		fmt.Fprintf(&w, " [%d: %d/%d peak %d/%d, %d blocks %d B, unmatched %d, replaced %d]", g.Ordinal,
			g.Allocated.Bytes, g.Reserved.Bytes, g.Allocated.Peak, g.Reserved.Peak, g.Blocks, g.BlockBytes,
			g.UnmatchedFrees, g.Replaced)
	}
	return w.String()
}

func TestReports(t *testing.T) {
	t.Parallel()
	alloc := func(at schema.KTime, ptr uint64, bytes int64, allocated uint64) report {
		return report{pid: 7, tid: 1, at: at, ptr: ptr, bytes: bytes, allocated: allocated, reserved: 1000}
	}
	tests := []struct {
		name    string
		reports []report
		want    string
	}{
		{"one block", []report{alloc(10, 1, 100, 100)},
			"complete [0: 100/1000 peak 100/1000, 1 blocks 100 B, unmatched 0, replaced 0]"},
		{"taken back", []report{alloc(10, 1, 100, 100), alloc(11, 1, -100, 0)},
			"complete [0: 0/1000 peak 100/1000, 0 blocks 0 B, unmatched 0, replaced 0]"},
		{"blocks before the first report", []report{alloc(10, 1, 100, 350)},
			"late [0: 350/1000 peak 350/1000, 1 blocks 100 B, unmatched 0, replaced 0]"},
		{"a free first: its block was there before", []report{alloc(10, 1, -100, 0)},
			"late [0: 0/1000 peak 100/1000, 0 blocks 0 B, unmatched 1, replaced 0]"},
		{"the report of a free was lost", []report{alloc(10, 1, 100, 100), alloc(12, 1, 60, 60)},
			"complete [0: 60/1000 peak 100/1000, 1 blocks 60 B, unmatched 0, replaced 1]"},
		{"freed twice", []report{alloc(10, 1, 100, 100), alloc(12, 1, -100, 0), alloc(13, 1, -100, 0)},
			"complete [0: 0/1000 peak 100/1000, 0 blocks 0 B, unmatched 1, replaced 0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, h := tensor.New(tensor.Config{}), newHost()
			for _, r := range tt.reports {
				h.add(r)
			}
			h.send(t, f)
			if got := summary(t, f); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestEnds: memory batches and tensor batches of one host may arrive in any order.
func TestEnds(t *testing.T) {
	t.Parallel()
	before := func(h *host) *host {
		h.add(report{pid: 7, tid: 1, at: 10, ptr: 1, bytes: 100, allocated: 100, reserved: 1000})
		return h.add(report{pid: 7, tid: 1, at: 11, ptr: 2, bytes: 50, allocated: 150, reserved: 1000})
	}
	after := func(h *host) *host {
		return h.add(report{pid: 7, tid: 2, at: 30, ptr: 1, bytes: 7, allocated: 7, reserved: 20})
	}
	const ended = "complete ended [0: 150/1000 peak 150/1000, 2 blocks 150 B, unmatched 0, replaced 0]"
	const image = "complete [0: 7/20 peak 7/20, 1 blocks 7 B, unmatched 0, replaced 0]"
	tests := []struct {
		name string
		run  func(t *testing.T, f *tensor.Fold, h *host)
		want string
	}{
		{"exit after the blocks", func(t *testing.T, f *tensor.Fold, h *host) {
			before(h).send(t, f)
			apply(t, f, h.end(t, "exit", 7, 20))
		}, ended},
		{"exit before the blocks", func(t *testing.T, f *tensor.Fold, h *host) {
			apply(t, f, h.end(t, "exit", 7, 20))
			before(h).send(t, f)
		}, ended},
		{"blocks are dropped when all was seen", func(t *testing.T, f *tensor.Fold, h *host) {
			before(h).send(t, f)
			apply(t, f, h.end(t, "exit", 7, 20))
			f.Tick(&h.Header, 19)
			if p := only(t, f); len(p.GPUs[0].Largest) != 2 {
				t.Errorf("%d blocks before the end was complete, want 2", len(p.GPUs[0].Largest))
			}
			f.Tick(&h.Header, 20)
			if p := only(t, f); len(p.GPUs[0].Largest) != 0 {
				t.Errorf("%d blocks are left", len(p.GPUs[0].Largest))
			}
		}, ended},
		{"exec between", func(t *testing.T, f *tensor.Fold, h *host) {
			before(h).send(t, f)
			apply(t, f, h.end(t, "exec", 7, 20))
			after(h).send(t, f)
		}, image},
		{"exec arrives last", func(t *testing.T, f *tensor.Fold, h *host) {
			after(before(h)).send(t, f)
			apply(t, f, h.end(t, "exec", 7, 20))
		}, "complete [0: 7/20 peak 7/20, 1 blocks 7 B, unmatched 0, replaced 1]"},
		{"exec arrives first", func(t *testing.T, f *tensor.Fold, h *host) {
			apply(t, f, h.end(t, "exec", 7, 20))
			after(before(h)).send(t, f)
		}, image},
		{"another boot", func(t *testing.T, f *tensor.Fold, h *host) {
			before(h).send(t, f)
			h.BootID, h.ClockOffset = "boot-2", offset+3600e9
			apply(t, f, h.end(t, "exit", 99, 1))
		}, strings.Replace(ended, "complete", "gap", 1)},
		{"a late batch of an earlier boot", func(t *testing.T, f *tensor.Fold, h *host) {
			before(h).send(t, f)
			h.BootID, h.ClockOffset = "boot-0", offset-3600e9
			apply(t, f, h.end(t, "exit", 99, 1))
		}, strings.Replace(ended, " ended", "", 1)},
		{"absent from the list of a later run", func(t *testing.T, f *tensor.Fold, h *host) {
			before(h).send(t, f)
			m := consumertest.Memory(t, "h")
			m.Header = h.Header
			m.Header.Run = 25
			m.Older(8, 9)
			apply(t, f, m.Message())
		}, strings.Replace(ended, "complete", "gap", 1)},
		{"in the list of a later run", func(t *testing.T, f *tensor.Fold, h *host) {
			before(h).send(t, f)
			m := consumertest.Memory(t, "h")
			m.Header = h.Header
			m.Header.Run = 25
			m.Older(7, 9)
			apply(t, f, m.Message())
		}, "gap [0: 150/1000 peak 150/1000, 2 blocks 150 B, unmatched 0, replaced 0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, h := tensor.New(tensor.Config{}), newHost()
			tt.run(t, f, h)
			if got := summary(t, f); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestExecWithoutTensors: a process whose new image has no allocator is not reported.
func TestExecWithoutTensors(t *testing.T) {
	t.Parallel()
	f, h := tensor.New(tensor.Config{}), newHost()
	h.add(report{pid: 7, at: 10, ptr: 1, bytes: 100, allocated: 100}).send(t, f)
	apply(t, f, h.end(t, "exec", 7, 20))
	if all := f.Report(1); len(all) != 0 || strings.Contains(string(consumertest.Page(t, f)), "torch") {
		t.Errorf("reported %+v", all)
	}
}

func TestEvidenceOfLoss(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		lose func(t *testing.T, f *tensor.Fold, h *host)
		want string
	}{
		{"none", func(*testing.T, *tensor.Fold, *host) {}, "complete"},
		{"tensor ring", func(_ *testing.T, _ *tensor.Fold, h *host) { h.Lost[schema.LossTensorRing]++ }, "gap"},
		{"control ring", func(_ *testing.T, _ *tensor.Fold, h *host) { h.Lost[schema.LossControlRing]++ }, "gap"},
		{"bulk ring", func(_ *testing.T, _ *tensor.Fold, h *host) { h.Lost[schema.LossBulkRing]++ }, "complete"},
		{"another run", func(_ *testing.T, _ *tensor.Fold, h *host) { h.Run++ }, "gap"},
		{"batches", func(_ *testing.T, f *tensor.Fold, h *host) { f.Lost(h.Cluster, h.Host, h.BootID, 2) }, "gap"},
		{"batches of another boot", func(_ *testing.T, f *tensor.Fold, h *host) { f.Lost(h.Cluster, h.Host, "x", 2) },
			"complete"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, h := tensor.New(tensor.Config{}), newHost()
			h.Lost[schema.LossTensorRing] = 5 // before the first batch
			h.add(report{pid: 7, at: 10, ptr: 1, bytes: 100, allocated: 100}).send(t, f)
			tt.lose(t, f, h)
			h.add(report{pid: 7, at: 20, ptr: 2, bytes: 100, allocated: 200}).send(t, f)
			if got := only(t, f).Evidence; got != tt.want {
				t.Errorf("evidence %s, want %s", got, tt.want)
			}
		})
	}
}

func TestManyGPUsAndThreads(t *testing.T) {
	t.Parallel()
	f, h := tensor.New(tensor.Config{}), newHost()
	const n = 3000
	for i := range uint32(n) {
		at := 10 + schema.KTime(i)
		h.add(report{pid: 7, tid: i, gpu: i % 100, at: at, ptr: uint64(i) << 10, bytes: 1, allocated: 1})
	}
	h.send(t, f)
	p := only(t, f)
	blocks := uint64(0)
	for _, g := range p.GPUs {
		blocks += g.Blocks
	}
	if last := p.GPUs[len(p.GPUs)-1]; len(p.GPUs) != 64 || last.Ordinal != -1 || last.UUID != "" || blocks != n {
		t.Errorf("%d GPUs, the last %d %q; %d blocks", len(p.GPUs), last.Ordinal, last.UUID, blocks)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	f, h := tensor.New(tensor.Config{}), newHost()
	h.add(report{pid: 7, at: 10, ptr: 1, bytes: 100, allocated: 100}).send(t, f)
	f.Forget("c", "h")
	if len(f.Report(1)) != 0 || len(consumertest.Sections(t, f)) != 1 {
		t.Error("something of the host is left")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	f, h := tensor.New(tensor.Config{}), newHost()
	h.add(report{pid: 7, at: 10, ptr: 1, bytes: 100, allocated: 100, reserved: 1000})
	h.add(report{pid: 7, gpu: 1, at: 11, ptr: 2, bytes: 30, allocated: 30, reserved: 500})
	h.add(report{pid: 8, at: 12, ptr: 1, bytes: 5, allocated: 5, reserved: 10}).send(t, f)
	apply(t, f, h.end(t, "exit", 8, 20))
	consumertest.GoldenFile(t, "testdata/metrics.txt", consumertest.Page(t, f))
	for pid := range uint32(2100) {
		h.add(report{pid: 100 + pid, at: 30, ptr: 1, bytes: 1, allocated: 1, reserved: 2})
	}
	h.send(t, f)
	page := string(consumertest.Page(t, f))
	if n := strings.Count(page, "\ngputap_torch_allocated_bytes{"); n != 2000 {
		t.Errorf("%d series, want 2000", n)
	}
	if other := `gputap_torch_allocated_bytes{UUID="",cluster="",comm="other",container="",gpu="",hostname="",job="",pid="",pod="",unit="",user=""} 103`; !strings.
		Contains(page, other) {
		t.Errorf("the page lacks %s", other)
	}
}

// Times of reports that go back, as only a broken or hostile producer sends them, do no harm.
func TestTimesThatGoBack(t *testing.T) {
	t.Parallel()
	f, h := tensor.New(tensor.Config{}), newHost()
	h.add(report{pid: 7, tid: 7, at: 100, ptr: 1, bytes: 10, allocated: 10, reserved: 20}).
		add(report{pid: 7, tid: 7, at: 50, ptr: 2, bytes: 10, allocated: 20, reserved: 20}).send(t, f)
	apply(t, f, h.end(t, "exec", 7, 70))
	f = consumertest.Restore(t, tensor.New(tensor.Config{}), consumertest.Sections(t, f))
	h.add(report{pid: 7, tid: 7, at: 120, ptr: 1, bytes: -10, allocated: 10, reserved: 20}).send(t, f)
	if g := only(t, f).GPUs[0]; g.Blocks != 0 || g.BlockBytes != 0 {
		t.Errorf("%d blocks of %d bytes", g.Blocks, g.BlockBytes)
	}
}
