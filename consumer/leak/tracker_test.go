package leak

import (
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const mb = 1 << 20

func apply(tb testing.TB, t *Tracker, b *schema.Batch) {
	tb.Helper()
	if err := t.Apply(b); err != nil {
		tb.Fatal(err)
	}
}

// holding is the part of a process report that TestRules compares.
type holding struct {
	live, allocations, peak      uint64
	unfreed, unfreedN            uint64
	hostLive, hostN, hostUnfreed uint64
	ended                        bool
}

func holdingOf(p *Process) holding {
	return holding{
		p.LiveBytes, p.LiveAllocations, p.PeakBytes, p.UnfreedBytes, p.UnfreedAllocations,
		p.HostLiveBytes, p.HostLiveAllocations, p.HostUnfreedBytes, p.Ended,
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	const a, b = 0x7f0000000000, 0x7f0000200000
	tests := []struct {
		name     string
		events   func(p *consumertest.Process)
		want     holding
		counters Counters
	}{
		{"alloc is live", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 5)
		}, holding{live: 100, allocations: 1, peak: 100}, Counters{}},
		{"free on another thread", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 5).Free(2, a, 20, 5)
		}, holding{peak: 100}, Counters{}},
		{"peak is the largest live sum", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Free(1, a, 20, 1).Alloc(1, b, 60, 30, 1)
		}, holding{live: 60, allocations: 1, peak: 100}, Counters{}},
		{"a free entering at the return frees", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 5).Free(1, a, 15, 1)
		}, holding{peak: 100}, Counters{}},
		{"free raced by the next alloc of its address", func(p *consumertest.Process) {
			// A frees a in [20, 30]; the driver returns a to B, whose alloc [22, 28] is recorded first.
			p.Alloc(1, a, 100, 10, 1).Alloc(2, a, 40, 22, 6).Free(1, a, 20, 10)
		}, holding{live: 40, allocations: 1, peak: 100}, Counters{ReallocOverLive: 1, LateFrees: 1}},
		{"the next free ends the new life", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Alloc(2, a, 40, 22, 6).Free(1, a, 20, 10).Free(2, a, 40, 1)
		}, holding{peak: 100}, Counters{ReallocOverLive: 1, LateFrees: 1}},
		{"realloc whose free was never seen", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Alloc(1, a, 40, 20, 1)
		}, holding{live: 40, allocations: 1, peak: 100}, Counters{ReallocOverLive: 1, UnseenEnds: 1}},
		{"free of an unknown address", func(p *consumertest.Process) {
			p.Free(1, a, 20, 1)
		}, holding{}, Counters{UnmatchedFrees: 1}},
		{"the second of two frees is unmatched", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Free(1, a, 20, 1).Free(1, a, 30, 1)
		}, holding{peak: 100}, Counters{UnmatchedFrees: 1}},
		{"free(0) is not a free", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Free(1, 0, 20, 1)
		}, holding{live: 100, allocations: 1, peak: 100}, Counters{NullFrees: 1}},
		{"failed alloc is never live", func(p *consumertest.Process) {
			p.Fail("cuMemAlloc_v2", 1, 2, 1<<60, 10)
		}, holding{}, Counters{}},
		{"failed free frees nothing", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1)
			p.Call("cuMemFree_v2", 1, schema.Memory{Time: 20, Ptr: a, Result: 1})
		}, holding{live: 100, allocations: 1, peak: 100}, Counters{}},
		{"cuMemFree frees managed and pool memory", func(p *consumertest.Process) {
			p.Call("cuMemAllocManaged", 1, schema.Memory{Time: 10, Ptr: a, Bytes: 100})
			p.Call("cuMemAllocAsync", 1, schema.Memory{Time: 11, Ptr: b, Bytes: 50})
			p.Free(1, a, 20, 1).Free(1, b, 21, 1)
		}, holding{peak: 150}, Counters{}},
		{"pinned memory is the host's", func(p *consumertest.Process) {
			p.Call("cuMemHostAlloc", 1, schema.Memory{Time: 10, Ptr: a, Bytes: 100})
			p.Alloc(1, b, 7, 11, 1)
		}, holding{live: 7, allocations: 1, peak: 7, hostLive: 100, hostN: 1}, Counters{}},
		{"unread address makes nothing live", func(p *consumertest.Process) {
			p.Alloc(1, 0, 100, 10, 1)
		}, holding{}, Counters{}},
		{"unknown op", func(p *consumertest.Process) {
			p.Add(&schema.Call{Symbol: "cuMemTeleport", Class: schema.ClassDevice}, 1, schema.Memory{Time: 10, Ptr: a})
		}, holding{}, Counters{UnknownOps: 1}},

		{"exit makes live unfreed", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Exit(50)
		}, holding{peak: 100, unfreed: 100, unfreedN: 1, ended: true}, Counters{}},
		{"a second exit changes nothing", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Exit(50).Exit(51)
		}, holding{peak: 100, unfreed: 100, unfreedN: 1, ended: true}, Counters{}},
		{"pinned memory at exit", func(p *consumertest.Process) {
			p.Call("cuMemHostAlloc", 1, schema.Memory{Time: 10, Ptr: a, Bytes: 100}).Exit(50)
		}, holding{hostUnfreed: 100, ended: true}, Counters{}},
		{"exec ends the image but not the process", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Exec("other", 50).Alloc(1, a, 30, 60, 1)
		}, holding{live: 30, allocations: 1, peak: 100, unfreed: 100, unfreedN: 1}, Counters{}},
		{"events after an exit", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Exit(50).Alloc(1, a, 30, 60, 1).Alloc(1, b, 3, 61, 1).Free(1, b, 62, 1)
		}, holding{live: 30, allocations: 1, peak: 100, unfreed: 100, unfreedN: 1}, Counters{}},
		{"free after an exit", func(p *consumertest.Process) {
			p.Alloc(1, a, 100, 10, 1).Exit(50).Free(1, a, 60, 1)
		}, holding{peak: 100, unfreed: 100, unfreedN: 1, ended: true}, Counters{UnmatchedFrees: 1}},

		{"create, map, unmap, release", func(p *consumertest.Process) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 20, 1).Unmap(1, a, 2*mb, 30, 1).Release(1, 9, 40, 1)
		}, holding{peak: 2 * mb}, Counters{}},
		{"released physical memory lives while it is mapped", func(p *consumertest.Process) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 20, 1).Release(1, 9, 25, 1)
		}, holding{live: 2 * mb, allocations: 1, peak: 2 * mb}, Counters{}},
		{"the last unmap ends released memory", func(p *consumertest.Process) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 20, 1).Map(1, b, 2*mb, 9, 21, 1).Release(1, 9, 25, 1)
			p.Unmap(1, a, 2*mb, 30, 1).Unmap(1, b, 2*mb, 31, 1)
		}, holding{peak: 2 * mb}, Counters{}},
		{"the driver reuses a released handle while its memory is mapped", func(p *consumertest.Process) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 20, 1).Release(1, 9, 25, 1).Create(1, 9, mb, 30, 1)
			p.Unmap(1, a, 2*mb, 40, 1)
		}, holding{live: mb, allocations: 1, peak: 3 * mb}, Counters{}},
		{"one unmap over many mappings", func(p *consumertest.Process) {
			for i := range uint64(4) {
				p.Create(1, 9+i, 2*mb, 10, 1).Map(1, a+i*2*mb, 2*mb, 9+i, 20, 1).Release(1, 9+i, 25, 1)
			}
			p.Unmap(1, a+2*mb, 4*mb, 30, 1)
		}, holding{live: 4 * mb, allocations: 2, peak: 8 * mb}, Counters{}},
		{"unmap raced by the next map of its range", func(p *consumertest.Process) {
			p.Create(1, 8, mb, 1, 1).Create(1, 9, mb, 2, 1).Map(1, a, mb, 8, 10, 1).Release(1, 8, 12, 1)
			p.Map(2, a, mb, 9, 22, 6).Unmap(1, a, mb, 20, 10)
		}, holding{live: mb, allocations: 1, peak: 2 * mb}, Counters{ReallocOverLive: 1, LateFrees: 1}},
		{"release raced by the next create of its handle", func(p *consumertest.Process) {
			p.Create(1, 9, mb, 1, 1).Create(2, 9, mb, 22, 6).Release(1, 9, 20, 10)
		}, holding{live: mb, allocations: 1, peak: mb}, Counters{ReallocOverLive: 1, LateFrees: 1}},
		{"unknown handles are counted", func(p *consumertest.Process) {
			p.Release(1, 77, 10, 1).Map(1, a, mb, 78, 20, 1).Unmap(1, a, mb, 30, 1).Unmap(1, a, mb, 40, 1)
		}, holding{}, Counters{UnknownHandles: 2, UnmatchedFrees: 1}},
		{"a handle may equal an address", func(p *consumertest.Process) {
			p.Create(1, a, mb, 10, 1).Alloc(1, a, 5, 11, 1).Free(1, a, 20, 1)
		}, holding{live: mb, allocations: 1, peak: mb + 5}, Counters{}},
		{"exit with memory held by a mapping alone", func(p *consumertest.Process) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 20, 1).Release(1, 9, 25, 1)
			p.Create(1, 10, mb, 30, 1).Map(1, b, mb, 10, 31, 1).Exit(50)
		}, holding{peak: 3 * mb, unfreed: 3 * mb, unfreedN: 2, ended: true}, Counters{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			test.events(h.Process(42, 1, "train"))
			tracker := New(Config{})
			apply(t, tracker, h.Batch())
			r := tracker.Report()
			if got := holdingOf(&r.Processes[0]); got != test.want {
				t.Errorf("process:\n got %+v\nwant %+v", got, test.want)
			}
			if r.Counters != test.counters {
				t.Errorf("counters:\n got %+v\nwant %+v", r.Counters, test.counters)
			}
			if got, want := r.Totals.LiveBytes, test.want.live; got != want {
				t.Errorf("total live: got %d, want %d", got, want)
			}
		})
	}
}

// Seed 001's train_simulator: ten pointers over two threads, 70.25 MB, then 16 MB of it freed.
func TestSeedTrain(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(2166793, 1, "python")
	p.UID, p.Container = 1000, "c0ffee"
	p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: 0}
	quarters := []uint64{80, 64, 48, 32, 24, 16, 8, 4, 4, 1} // of a MB: 70.25 MB
	for i, q := range quarters {
		ptr := uint64(0x7d332bc00000 + (i-1)*0x10000000)
		p.Alloc(uint32(2166793+i%2), ptr, q*mb/4, schema.KTime(100+10*i), 5)
	}
	tracker := New(Config{})
	apply(t, tracker, h.Batch())
	if got := tracker.Report().Processes[0]; got.LiveBytes != 7025*mb/100 || got.LiveAllocations != 10 {
		t.Fatalf("got %d bytes in %d allocations, want 70.25 MB in 10", got.LiveBytes, got.LiveAllocations)
	}
	p.Free(2166793, 0x7d332bc00000, 500, 1)
	apply(t, tracker, h.Batch())
	got := tracker.Report().Processes[0]
	if got.LiveBytes != 5425*mb/100 || got.PeakBytes != 7025*mb/100 {
		t.Fatalf("got %d live, %d peak, want 54.25 and 70.25 MB", got.LiveBytes, got.PeakBytes)
	}
	threads := []ThreadUse{{2166793, "python", 41 * mb, 5},
		{2166794, "python", 1325 * mb / 100, 4}} // the other thread freed it
	if !slices.Equal(got.Threads, threads) {
		t.Errorf("threads %+v, want %+v", got.Threads, threads)
	}
	if got.Comm != "python" || got.UID != 1000 || got.Container != "c0ffee" || got.ID.PID != 2166793 {
		t.Errorf("the process is %+v", got.Info)
	}
	top := tracker.Top(2)
	want := Allocation{
		Info: got.Info, TID: 2166793, ThreadComm: "python",
		Ptr: 0x7d331bc00000, Bytes: 20 * mb, GPU: "GPU-1", Class: schema.ClassDevice,
		At: time.Unix(1_700_000_000, 105).UTC(), Symbol: "cuMemAlloc_v2",
	}
	if len(top) != 2 || top[0] != want || top[1].Bytes != 12*mb {
		t.Fatalf("top: got %+v\nwant %+v, then 12 MB", top, want)
	}
}

// Seed 002's leak3: three times 8,000,000 bytes, two freed, the third ended by the exit.
func TestSeedLeak3(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(7, 1, "leak3")
	for i := range uint64(3) {
		p.Alloc(7, 0x1000+i<<24, 8_000_000, schema.KTime(10+i), 1)
	}
	p.Free(7, 0x1000, 20, 1).Free(7, 0x1000+1<<24, 21, 1).Exit(30)
	tracker := New(Config{})
	apply(t, tracker, h.Batch())
	got := tracker.Report().Processes[0]
	want := holding{peak: 24_000_000, unfreed: 8_000_000, unfreedN: 1, ended: true}
	if holdingOf(&got) != want {
		t.Fatalf("got %+v, want %+v", holdingOf(&got), want)
	}
	for _, c := range got.Calls {
		if n := map[string]uint64{"cuMemAlloc_v2": 3, "cuMemFree_v2": 2}[c.Symbol]; c.OK != n || c.Failed != 0 {
			t.Errorf("%s: %d succeeded, %d failed, want %d and 0", c.Symbol, c.OK, c.Failed, n)
		}
	}
	if len(got.Calls) != 2 {
		t.Errorf("calls: %+v, want two symbols", got.Calls)
	}
}
