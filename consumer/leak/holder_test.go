package leak

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

func TestHolders(t *testing.T) {
	t.Parallel()
	const a, b, token = 0x7f0000000000, 0x7f0000200000, 1 << 40
	type proc = consumertest.Process
	type held struct{ live, holders, unclosed uint64 }
	tests := []struct {
		name   string
		events func(p *proc)
		want   held
		check  Counters
	}{
		{"an opened address is a holder without bytes", func(p *proc) {
			p.Open(1, a, token, 10, 1)
		}, held{holders: 1}, Counters{}},
		{"close ends it", func(p *proc) {
			p.Open(1, a, token, 10, 1).Close(1, a, 20, 1)
		}, held{}, Counters{}},
		{"opened twice is closed twice", func(p *proc) {
			p.Open(1, a, token, 10, 1).Open(1, a, token, 11, 1).Close(1, a, 20, 1)
		}, held{holders: 1}, Counters{}},
		{"the second close ends the holder", func(p *proc) {
			p.Open(1, a, token, 10, 1).Open(1, a, token, 11, 1).Close(1, a, 20, 1).Close(1, a, 21, 1).Close(1, a, 22, 1)
		}, held{}, Counters{UnmatchedFrees: 1}},
		{"another token at the address ends the earlier holder", func(p *proc) {
			p.Open(1, a, token, 10, 1).Open(1, a, token+1, 11, 1).Close(1, a, 20, 1)
		}, held{}, Counters{ReallocOverLive: 1, UnseenEnds: 1}},
		{"close raced by the next open of its address", func(p *proc) {
			p.Open(1, a, token, 10, 1).Open(2, a, token+1, 22, 6).Close(1, a, 20, 10)
		}, held{holders: 1}, Counters{ReallocOverLive: 1, LateFrees: 1}},
		{"close of an unknown address", func(p *proc) {
			p.Close(1, a, 20, 1)
		}, held{}, Counters{UnmatchedFrees: 1}},
		{"close of memory of its own", func(p *proc) {
			p.Alloc(1, a, 100, 10, 1).Close(1, a, 20, 1)
		}, held{live: 100}, Counters{UnmatchedFrees: 1}},
		{"memory over a holder ends it", func(p *proc) {
			p.Open(1, a, token, 10, 1).Alloc(1, a, 100, 20, 1).Free(1, a, 30, 1)
		}, held{}, Counters{ReallocOverLive: 1, UnseenEnds: 1}},
		{"a holder over memory ends that", func(p *proc) {
			p.Alloc(1, a, 100, 10, 1).Open(1, a, token, 20, 1)
		}, held{holders: 1}, Counters{ReallocOverLive: 1, UnseenEnds: 1}},
		{"cuMemFree of an external buffer", func(p *proc) {
			p.Call("cuImportExternalMemory", 1, schema.Memory{Time: 10, Ptr: 0x55, Aux: 7})
			p.Call("cuExternalMemoryGetMappedBuffer", 1, schema.Memory{Time: 11, Ptr: a, Aux: 0x55}).Free(1, a, 20, 1)
		}, held{holders: 1}, Counters{}},
		{"destroying an external memory object", func(p *proc) {
			p.Call("cuImportExternalMemory", 1, schema.Memory{Time: 10, Ptr: 0x55, Aux: 7})
			p.Call("cuDestroyExternalMemory", 1, schema.Memory{Time: 20, Ptr: 0x55})
		}, held{}, Counters{}},
		{"cuMemFreeAsync of an imported pool pointer", func(p *proc) {
			p.Call("cuMemPoolImportPointer", 1, schema.Memory{Time: 10, Ptr: a, Aux: token})
			p.Call("cuMemFreeAsync", 1, schema.Memory{Time: 20, Ptr: a})
		}, held{}, Counters{}},
		{"memory opened by IPC ends with its context", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Open(1, a, token, 10, 1).Open(1, a, token, 11, 1).DestroyContext(1, 20, 1)
		}, held{}, Counters{}},
		{"memory opened by IPC survives other contexts", func(p *proc) {
			p.CreateContext(1, 5, 1).CreateContext(2, 6, 1).In(1).Open(1, a, token, 10, 1).DestroyContext(2, 20, 1)
		}, held{holders: 1}, Counters{}},
		{"pool pointers and imported handles stay", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Call("cuMemPoolImportPointer", 1,
				schema.Memory{Time: 10, Ptr: a, Aux: token})
			p.Import(1, 9, token, 11, 1).DestroyContext(1, 20, 1)
		}, held{holders: 2}, Counters{}},
		{"exit counts unclosed holders", func(p *proc) {
			p.Open(1, a, token, 10, 1).Open(1, b, token, 11, 1).Exit(50)
		}, held{unclosed: 2}, Counters{}},
		{"close after an exit", func(p *proc) {
			p.Open(1, a, token, 10, 1).Exit(50).Close(1, a, 60, 1)
		}, held{unclosed: 1}, Counters{UnmatchedFrees: 1}},
		{"unread address", func(p *proc) {
			p.Open(1, 0, token, 10, 1)
		}, held{}, Counters{}},

		{"an imported handle is held and has no bytes", func(p *proc) {
			p.Import(1, 9, token, 10, 1).Map(1, a, 2*mb, 9, 11, 1)
		}, held{holders: 1}, Counters{}},
		{"import, then release", func(p *proc) {
			p.Import(1, 9, token, 10, 1).Release(1, 9, 20, 1)
		}, held{}, Counters{}},
		{"release before import", func(p *proc) {
			p.Release(1, 9, 5, 1).Import(1, 9, token, 10, 1)
		}, held{holders: 1}, Counters{UnknownHandles: 1}},
		{"a mapping keeps an imported handle's memory held", func(p *proc) {
			p.Import(1, 9, token, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Release(1, 9, 20, 1)
		}, held{holders: 1}, Counters{}},
		{"the last unmap ends an imported handle", func(p *proc) {
			p.Import(1, 9, token, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Release(1, 9, 20, 1).Unmap(1, a, 2*mb, 30, 1)
		}, held{}, Counters{}},
		{"exit with an import held by a mapping alone", func(p *proc) {
			p.Import(1, 9, token, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Release(1, 9, 20, 1).Exit(30)
		}, held{unclosed: 1}, Counters{}},

		{"retain keeps released memory", func(p *proc) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Retain(1, 9, a, 12, 1)
			p.Unmap(1, a, 2*mb, 20, 1).Release(1, 9, 21, 1)
		}, held{live: 2 * mb}, Counters{}},
		{"the last release ends retained memory", func(p *proc) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Retain(1, 9, a+mb, 12, 1)
			p.Unmap(1, a, 2*mb, 20, 1).Release(1, 9, 21, 1).Release(1, 9, 22, 1)
		}, held{}, Counters{}},
		{"retain of a handle that only mappings kept", func(p *proc) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Release(1, 9, 12, 1).Retain(1, 9, a, 13, 1)
			p.Unmap(1, a, 2*mb, 20, 1)
		}, held{live: 2 * mb}, Counters{}},
		{"release of a handle that was retained from a mapping", func(p *proc) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Release(1, 9, 12, 1).Retain(1, 9, a, 13, 1)
			p.Unmap(1, a, 2*mb, 20, 1).Release(1, 9, 30, 1)
		}, held{}, Counters{}},
		{"retain of an unknown handle", func(p *proc) {
			p.Retain(1, 9, a, 10, 1).Retain(1, 0, a, 11, 1).Release(1, 9, 12, 1)
		}, held{}, Counters{UnknownHandles: 3}},
		{"retain of imported memory", func(p *proc) {
			p.Import(1, 9, token, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Retain(1, 9, a, 12, 1)
			p.Unmap(1, a, 2*mb, 20, 1).Release(1, 9, 21, 1)
		}, held{holders: 1}, Counters{}},
		{"exit with references left", func(p *proc) {
			p.Create(1, 9, 2*mb, 10, 1).Map(1, a, 2*mb, 9, 11, 1).Retain(1, 9, a, 12, 1).Release(1, 9, 13, 1).Exit(20)
		}, held{}, Counters{}},

		{"a multicast object has no bytes and is no holder", func(p *proc) {
			p.Call("cuMulticastCreate", 1, schema.Memory{Time: 10, Ptr: 8, Bytes: 2 * mb}).Create(1, 9, mb, 11, 1)
			p.Call("cuMulticastBindMem", 1, schema.Memory{Time: 12, Ptr: 8, Aux: 9, Bytes: mb}).Map(1, a, 2*mb, 8, 13,
				1)
			p.Call("cuMulticastUnbind", 1, schema.Memory{Time: 14, Ptr: 8, Bytes: mb}).Unmap(1, a, 2*mb, 15,
				1).Release(1, 8, 16, 1)
		}, held{live: mb}, Counters{}},
		{"a multicast object is neither memory nor holder at exit", func(p *proc) {
			p.Call("cuMulticastCreate", 1, schema.Memory{Time: 10, Ptr: 8, Bytes: 2 * mb}).Map(1, a, 2*mb, 8, 13,
				1).Release(1, 8, 14, 1).Exit(20)
		}, held{}, Counters{}},
		{"reservations, prefetches, access and recorded calls allocate nothing", func(p *proc) {
			for _, symbol := range []string{"cuMemAddressReserve", "cuMemAddressFree", "cuMemSetAccess",
				"cuMemPrefetchAsync",
				"cuMemMapArrayAsync", "cuMemPoolTrimTo", "cuModuleLoadData", "cuModuleUnload"} {
				p.Call(symbol, 1, schema.Memory{Time: 10, Ptr: a, Bytes: 1 << 40})
			}
			p.Record("cuMemAllocAsync", 1, schema.Memory{Time: 11, Ptr: b, Bytes: 1 << 30})
		}, held{}, Counters{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			test.events(h.Process(42, 1, "train"))
			tracker := New(Config{})
			apply(t, tracker, h.Batch())
			r := tracker.Report()
			p := &r.Processes[0]
			if got := (held{p.LiveBytes, p.HolderCount, p.UnclosedHolders}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if n := uint64(len(p.Holders)); n != p.HolderCount {
				t.Errorf("%d holders listed, want %d", n, p.HolderCount)
			}
			if r.Counters != test.check {
				t.Errorf("counters %+v, want %+v", r.Counters, test.check)
			}
			balanced(t, tracker)
			if p.Ended {
				if left := tracker.slabLive(); left != 0 {
					t.Errorf("%d entries left after the exit", left)
				}
			}
		})
	}
}

// A holder names the exporting process only if both are on the same host.
func TestHolderNamesExporterOfSameHost(t *testing.T) {
	t.Parallel()
	const token = 0xfeed << 32
	tracker := New(Config{})
	h := consumertest.Memory(t, "gpu-01")
	h.Process(7, 1, "server").Alloc(7, 0x1000, 100, 10, 1).Export(7, 0x1000, token, 11).Export(7, 0x1000, token, 12)
	h.Process(7, 1, "server").Call("cuMemExportToShareableHandle", 7, schema.Memory{Time: 13, Ptr: 9, Aux: 12})
	h.Process(8, 1, "client").Open(8, 0x5000, token, 20, 1).Import(8, 9, 12, 21, 1)
	apply(t, tracker, h.Batch())
	far := consumertest.Memory(t, "gpu-02")
	far.Process(8, 1, "client").Open(8, 0x5000, token, 20, 1)
	apply(t, tracker, far.Batch())
	r := tracker.Report()
	at := func(n int64) time.Time { return time.Unix(1_700_000_000, n).UTC() }
	want := []Holder{
		{Ptr: 9, Class: schema.ClassVMM, Token: 12, At: at(22)},
		{Ptr: 0x5000, Class: schema.ClassIPC, Token: token, Owner: 7, At: at(21)},
	}
	if !reflect.DeepEqual(r.Processes[1].Holders, want) {
		t.Errorf("got %+v, want %+v", r.Processes[1].Holders, want)
	}
	if o := r.Processes[2].Holders[0].Owner; o != 0 || r.Processes[0].Exports != 3 {
		t.Errorf("owner %d on another host, %d exports; want 0 and 3", o, r.Processes[0].Exports)
	}
}

func TestNewestExportsAreKept(t *testing.T) {
	t.Parallel()
	var x exports
	for i := range uint64(3 * maxExports) {
		x.add(i, uint32(i))
	}
	if len(x.owners) != maxExports || len(x.tokens) != maxExports || x.owners[3*maxExports-1] != 3*maxExports-1 ||
		x.owners[2*maxExports-1] != 0 {
		t.Errorf("%d owners, %d tokens", len(x.owners), len(x.tokens))
	}
}

// A saturated counter does not change: the memory lives until its process ends.
func TestSaturatedCounterKeepsMemory(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(42, 1, "train").Create(1, 9, mb, 10, 1).Map(1, 1<<40, mb, 9, 11, 1)
	tracker := New(Config{})
	for range 70 {
		for range 1000 {
			p.Retain(1, 9, 1<<40, 12, 1)
		}
		apply(t, tracker, h.Batch())
	}
	for range 70 {
		for range 1000 {
			p.Release(1, 9, 20, 1)
		}
		apply(t, tracker, h.Batch())
	}
	p.Unmap(1, 1<<40, mb, 30, 1)
	apply(t, tracker, h.Batch())
	if got := tracker.Report().Processes[0].LiveBytes; got != mb {
		t.Errorf("%d bytes live, want %d", got, mb)
	}
	p.Exit(40)
	apply(t, tracker, h.Batch())
	if left := tracker.slabLive(); left != 0 {
		t.Errorf("%d entries left after the exit", left)
	}
}

// However often a handle is mapped, its memory ends with the last reference or mapping, and the process's next image
// starts without it.
func TestMemoryEndsWithLastOfManyMappings(t *testing.T) {
	t.Parallel()
	const n = math.MaxUint16 + 2
	for _, restored := range []bool{false, true} {
		h := consumertest.Memory(t, "gpu-01")
		p := h.Process(42, 1, "train").Create(1, 9, mb, 10, 1)
		for i := range uint64(n) {
			p.Map(1, 1<<40+i*mb, mb, 9, 11, 1)
		}
		tracker := New(Config{})
		apply(t, tracker, h.Batch())
		if restored {
			tracker = consumertest.Restore(t, New(Config{}), consumertest.Sections(t, tracker))
		}
		p.Release(1, 9, 20, 1).Unmap(1, 1<<40, n*mb, 30, 1)
		apply(t, tracker, h.Batch())
		if got := tracker.Report(); got.Totals.LiveBytes != 0 || got.Counters != (Counters{UnknownHandles: 3}) {
			t.Errorf("restored %t: %d bytes live, %+v", restored, got.Totals.LiveBytes, got.Counters)
		}
		p.Exec("next", 40)
		apply(t, tracker, h.Batch())
		if left := tracker.slabLive(); left != 0 || len(tracker.Top(10)) != 0 {
			t.Errorf("restored %t: %d entries left after the exec", restored, left)
		}
	}
}

func TestPools(t *testing.T) {
	t.Parallel()
	const a, b = 0x7f0000000000, 0x7f0000200000
	type proc = consumertest.Process
	create := func(p *proc, pool uint64, at schema.KTime) *proc {
		return p.Call("cuMemPoolCreate", 1, schema.Memory{Time: at, Duration: 5, Ptr: pool, Aux: 1 << 30})
	}
	destroy := func(p *proc, pool uint64, at schema.KTime) *proc {
		return p.Call("cuMemPoolDestroy", 1, schema.Memory{Time: at, Ptr: pool})
	}
	at := func(n int64) time.Time { return time.Unix(1_700_000_000, n).UTC() }
	tests := []struct {
		name   string
		events func(p *proc)
		live   uint64
		want   []Pool
		check  Counters
	}{
		{"allocations by pool", func(p *proc) {
			create(p, 5, 1).AllocPool(1, a, 100, 5, 10).AllocPool(1, b, 10, 6, 11).Call("cuMemAllocAsync", 1,
				schema.Memory{Time: 12, Ptr: 1, Bytes: 1})
		}, 111, []Pool{
			{Handle: 5, Ordinal: -1, Limit: 1 << 30, LiveBytes: 100, LiveAllocations: 1},
			{Handle: 6, Ordinal: -1, LiveBytes: 10, LiveAllocations: 1},
		}, Counters{}},
		{"destroy frees nothing", func(p *proc) {
			destroy(create(p, 5, 1).AllocPool(1, a, 100, 5, 10).PoolInfo(5, poolReserved, 4096, 11), 5, 20)
		}, 100, []Pool{{Handle: 5, Ordinal: -1, Limit: 1 << 30, Destroyed: true, LiveBytes: 100,
			LiveAllocations: 1}}, Counters{}},
		{"a destroyed pool ends with its last allocation", func(p *proc) {
			destroy(create(p, 5, 1).AllocPool(1, a, 100, 5, 10), 5, 20).Free(1, a, 30, 1)
		}, 0, nil, Counters{}},
		{"latest readings of reserved and used", func(p *proc) {
			p.PoolInfo(5, poolReserved, 4096, 10).PoolInfo(5, poolReserved, 8192, 20).PoolInfo(5, poolUsed, 100,
				21).PoolInfo(5, 6, 9, 22)
		}, 0, []Pool{{Handle: 5, Ordinal: -1, ReservedBytes: 8192, ReservedAt: at(21), UsedBytes: 100,
			UsedAt: at(22)}}, Counters{}},
		{"imported", func(p *proc) {
			p.Call("cuMemPoolImportFromShareableHandle", 1, schema.Memory{Time: 10, Ptr: 5, Aux: 77})
		}, 0, []Pool{{Handle: 5, Ordinal: -1, Imported: true}}, Counters{}},
		{"two destroys of unknown pools", func(p *proc) {
			destroy(destroy(p, 5, 1), 5, 2)
		}, 0, nil, Counters{UnmatchedFrees: 2}},
		{"destroy raced by the next pool of its handle", func(p *proc) {
			destroy(create(create(p, 5, 1), 5, 22), 5, 20)
		}, 0, []Pool{{Handle: 5, Ordinal: -1, Limit: 1 << 30}}, Counters{ReallocOverLive: 1, LateFrees: 1}},
		{"unread handle", func(p *proc) {
			create(p, 0, 1).PoolInfo(0, poolReserved, 1, 2)
		}, 0, nil, Counters{}},
		{"exit ends pools", func(p *proc) {
			create(p, 5, 1).AllocPool(1, a, 100, 5, 10).Exit(20)
		}, 0, nil, Counters{}},
		{"more pools than the limit", func(p *proc) {
			for i := range uint64(300) {
				p.AllocPool(1, a+i<<9, 1, 100+i, 10)
			}
			for i := range uint64(300) {
				p.Free(1, a+i<<9, 20, 1)
			}
			for i := range uint64(255) {
				destroy(p, 100+i, 30)
			}
		}, 0, nil, Counters{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			test.events(h.Process(42, 1, "train"))
			tracker := New(Config{})
			apply(t, tracker, h.Batch())
			r := tracker.Report()
			p := &r.Processes[0]
			if p.LiveBytes != test.live || !reflect.DeepEqual(p.Pools, test.want) {
				t.Errorf("%d live, %+v; want %d, %+v", p.LiveBytes, p.Pools, test.live, test.want)
			}
			if r.Counters != test.check {
				t.Errorf("counters %+v, want %+v", r.Counters, test.check)
			}
			balanced(t, tracker)
		})
	}
}

// The answer of cuMemGetInfo is compared with what all processes of the host hold on that GPU at that time.
func TestMemInfo(t *testing.T) {
	t.Parallel()
	tracker := New(Config{})
	h := consumertest.Memory(t, "gpu-01")
	p, q := h.Process(1, 1, "a"), h.Process(2, 1, "b")
	p.GPU, q.GPU = &schema.GPU{UUID: "GPU-x"}, &schema.GPU{UUID: "GPU-x", Ordinal: 3}
	p.Alloc(1, 0x1000, 100, 10, 1).Call("cuMemHostAlloc", 1, schema.Memory{Time: 11, Ptr: 0x9000, Bytes: 1 << 40})
	q.Alloc(2, 0x1000, 30, 12, 1).Alloc(2, 0x2000, 7, 13, 1).Free(2, 0x2000, 14, 1)
	p.MemInfo(1000, 8000, 20)
	q.GPU = &schema.GPU{UUID: "GPU-y"}
	q.Alloc(2, 0x3000, 500, 21, 1).MemInfo(400, 8000, 22)
	p.Alloc(1, 0x4000, 1, 30, 1)
	q.Exit(31)
	p.GPU = nil
	p.MemInfo(5, 6, 32)
	apply(t, tracker, h.Batch())
	r := tracker.Report()
	info := func(p int, ordinal int) MemInfo {
		for _, g := range r.Processes[p].GPUs {
			if g.Ordinal == ordinal && g.Info != nil {
				return *g.Info
			}
		}
		return MemInfo{}
	}
	at := func(n int64) time.Time { return time.Unix(1_700_000_000, n).UTC() }
	for _, test := range []struct {
		name        string
		got, want   MemInfo
		unexplained int64
	}{
		{"two processes on a GPU", info(0, 0), MemInfo{at(21), 1000, 8000, 100, 130}, 870},
		{"less used than live", info(1, 0), MemInfo{at(23), 400, 8000, 500, 500}, -100},
		{"unknown GPU", info(0, -1), MemInfo{at(33), 5, 6, 0, 0}, 5},
	} {
		if test.got != test.want || test.got.Unexplained() != test.unexplained {
			t.Errorf("%s: %+v, unexplained %d; want %+v, %d", test.name, test.got, test.got.Unexplained(), test.want,
				test.unexplained)
		}
	}
	for uuid, want := range map[string]uint64{"GPU-x": 101, "GPU-y": 0} {
		for _, boot := range tracker.boots() {
			if got := boot.cards[uuid].live; got != want {
				t.Errorf("%s: %d live, want %d", uuid, got, want)
			}
		}
	}
}

// The answers to an earlier image say nothing about the GPUs of the next image, which are numbered differently.
func TestExecDropsMemInfo(t *testing.T) {
	t.Parallel()
	tracker := New(Config{})
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(1, 1, "a")
	p.GPU = &schema.GPU{UUID: "GPU-x"}
	p.MemInfo(1000, 8000, 20).Exec("b", 30)
	p.GPU = &schema.GPU{UUID: "GPU-y"}
	p.Alloc(1, 0x1000, 100, 40, 1)
	apply(t, tracker, h.Batch())
	if gs := tracker.Report().Processes[0].GPUs; len(gs) != 1 || gs[0].UUID != "GPU-y" || gs[0].Info != nil {
		t.Errorf("got %+v", gs)
	}
}

// A GPU that was inferred may turn out to be another one.
func TestInferredGPU(t *testing.T) {
	t.Parallel()
	tracker := New(Config{})
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(1, 1, "a")
	p.GPU = &schema.GPU{UUID: "GPU-x", Inferred: true}
	p.Alloc(1, 0x1000, 100, 10, 1)
	apply(t, tracker, h.Batch())
	if g := tracker.Report().Processes[0].GPUs[0]; g.UUID != "GPU-x" || !g.Inferred {
		t.Errorf("got %+v", g)
	}
	p.GPU = &schema.GPU{UUID: "GPU-y"}
	p.Alloc(1, 0x2000, 10, 20, 1)
	apply(t, tracker, h.Batch())
	g := tracker.Report().Processes[0].GPUs[0]
	if g.UUID != "GPU-y" || g.Inferred || g.LiveBytes != 110 {
		t.Errorf("got %+v", g)
	}
	for _, boot := range tracker.boots() {
		if x, y := boot.cards["GPU-x"].live, boot.cards["GPU-y"].live; x != 0 || y != 110 {
			t.Errorf("%d and %d live, want 0 and 110", x, y)
		}
	}
}

// Memory counts as freed where it counted as allocated, even if its GPU becomes known in between. Memory allocated
// after that free counts on the known GPU.
func TestFreeCountsWhereAllocationCounted(t *testing.T) {
	t.Parallel()
	for _, first := range []schema.GPU{{}, {UUID: "GPU-x", Inferred: true}} {
		for _, restored := range []bool{false, true} {
			tracker := New(Config{})
			h := consumertest.Memory(t, "gpu-01")
			p := h.Process(1, 1, "a")
			p.GPU = &first
			p.Alloc(1, 0x1000, 100, 10, 1)
			apply(t, tracker, h.Batch())
			p.GPU = &schema.GPU{UUID: "GPU-y"}
			p.Alloc(1, 0x2000, 10, 20, 1).Free(1, 0x1000, 30, 1)
			apply(t, tracker, h.Batch())
			balanced(t, tracker)
			if restored {
				tracker = consumertest.Restore(t, New(Config{}), consumertest.Sections(t, tracker))
			}
			p.Free(1, 0x2000, 40, 1).Alloc(1, 0x1000, 1, 50, 1)
			apply(t, tracker, h.Batch())
			balanced(t, tracker)
			for _, w := range tracker.workloads.index {
				if want := map[string]uint64{first.UUID: 110, "GPU-y": 1}[w.UUID]; w.allocated != want {
					t.Errorf("first %+v, restored %t: %d bytes allocated on %q, want %d", first, restored,
						w.allocated, w.UUID, want)
				}
			}
		}
	}
}

func (t *Tracker) boots() (all []*boot) {
	for _, m := range t.hosts {
		all = slices.AppendSeq(all, maps.Values(m.boots))
	}
	return all
}

func TestHostMemory(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	h.Process(1, 1, "a").Call("cuMemHostAlloc", 1, schema.Memory{Time: 10, Ptr: 1, Bytes: 100}).
		Call("cuMemHostRegister_v2", 1, schema.Memory{Time: 11, Ptr: 2, Bytes: 10}).
		Call("cuMemHostRegister_v2", 1, schema.Memory{Time: 12, Ptr: 3, Bytes: 1}).
		Call("cuMemHostUnregister", 1, schema.Memory{Time: 13, Ptr: 3})
	tracker := New(Config{})
	apply(t, tracker, h.Batch())
	p := tracker.Report().Processes[0]
	if p.HostLiveBytes != 110 || p.Classes[schema.ClassPinned] != 100 || p.Classes[schema.ClassRegistered] != 10 ||
		p.LiveBytes != 0 {
		t.Errorf("got %d: %v", p.HostLiveBytes, p.Classes)
	}
}
