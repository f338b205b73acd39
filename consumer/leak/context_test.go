package leak

import (
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// kept is live memory, and memory freed by the end of a context.
type kept struct{ live, host, withContext, unknown uint64 }

func TestContexts(t *testing.T) {
	t.Parallel()
	const a, b, c, d = 0x7f0000000000, 0x7f0000200000, 0x7f0000400000, 0x7f0000600000
	type proc = consumertest.Process
	mem := func(at schema.KTime, ptr, bytes uint64) schema.Memory {
		return schema.Memory{Time: at, Duration: 1, Ptr: ptr, Bytes: bytes}
	}
	tests := []struct {
		name   string
		events func(p *proc)
		want   kept
		check  Counters // UnknownContexts is compared separately
	}{
		{"destroy frees what was allocated in it", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Alloc(1, a, 100, 10, 1).Alloc(1, b, 10, 12, 1).DestroyContext(1, 20, 1)
		}, kept{withContext: 110}, Counters{}},
		{"destroy frees nothing of other contexts", func(p *proc) {
			p.CreateContext(1, 5, 1).CreateContext(2, 6, 1)
			p.In(1).Alloc(1, a, 100, 10, 1).In(2).Alloc(1, b, 10, 12, 1).DestroyContext(1, 20, 1)
		}, kept{live: 10, withContext: 100}, Counters{}},
		{"managed, pitched, pinned, registered and array memory ends", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Call("cuMemAllocManaged", 1, mem(10, a, 1)).Call("cuMemAllocPitch_v2", 1,
				mem(11, b, 2))
			p.Call("cuMemHostAlloc", 1, mem(12, c, 4)).Call("cuMemHostRegister_v2", 1, mem(13, d, 8))
			p.Call("cuArrayCreate_v2", 1, mem(14, 0x55, 16)).DestroyContext(1, 20, 1)
		}, kept{withContext: 31}, Counters{}},
		{"pool, vmm and graph memory stays", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Call("cuMemAllocAsync", 1, mem(10, a, 1)).Create(1, 9, 2, 11, 1)
			p.Add(&schema.Call{Symbol: "cuGraphLaunch", Op: schema.OpAlloc, Class: schema.ClassGraph}, 1, mem(12, b, 4))
			p.DestroyContext(1, 20, 1)
		}, kept{live: 7}, Counters{}},
		{"memory of a named pool stays", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).AllocPool(1, a, 1, 77, 10).Alloc(1, b, 2, 11, 1).DestroyContext(1, 20, 1)
		}, kept{live: 1, withContext: 2}, Counters{}},
		{"free after the end is unmatched", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Alloc(1, a, 100, 10, 1).DestroyContext(1, 20, 1).Free(1, a, 30, 1)
		}, kept{withContext: 100}, Counters{UnmatchedFrees: 1}},
		{"freed memory is not freed again", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Alloc(1, a, 100, 10, 1).Free(1, a, 15, 1).DestroyContext(1, 20, 1)
		}, kept{}, Counters{}},
		{"double destroy", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Alloc(1, a, 100, 10, 1).DestroyContext(1, 20, 1).DestroyContext(1, 30, 1)
		}, kept{withContext: 100, unknown: 1}, Counters{}},
		{"destroy of a context made unseen, known from its memory", func(p *proc) {
			p.In(1).Alloc(1, a, 100, 10, 1).DestroyContext(1, 20, 1)
		}, kept{withContext: 100}, Counters{}},
		{"destroy of an unknown context", func(p *proc) {
			p.In(1).Alloc(1, a, 100, 10, 1).DestroyContext(2, 20, 1).DestroyContext(0, 21, 1)
		}, kept{live: 100, unknown: 2}, Counters{}},
		{"memory of an unknown context stays and is counted", func(p *proc) {
			p.Alloc(1, a, 100, 10, 1).CreateContext(1, 15, 1).DestroyContext(1, 20, 1)
		}, kept{live: 100, unknown: 1}, Counters{}},
		{"destroy before create", func(p *proc) {
			p.DestroyContext(1, 4, 1).CreateContext(1, 5, 1).In(1).Alloc(1, a, 100, 10, 1)
		}, kept{live: 100, unknown: 1}, Counters{}},
		{"destroy raced by the next context of its handle", func(p *proc) {
			p.CreateContext(1, 5, 1).In(1).Alloc(1, a, 100, 10, 1)
			p.CreateContext(1, 22, 6).DestroyContext(1, 20, 10).Alloc(1, b, 7, 40, 1)
		}, kept{live: 7, withContext: 100}, Counters{ReallocOverLive: 1, LateFrees: 1}},
		{"an allocation that returned after the reset began is the next life's", func(p *proc) {
			p.RetainContext(1, 5).In(1).Alloc(1, a, 100, 10, 1).Alloc(2, b, 7, 25, 5).ResetContext(1, 20)
		}, kept{live: 7, withContext: 100}, Counters{}},
		{"the next reset ends it", func(p *proc) {
			p.RetainContext(1, 5).In(1).Alloc(2, b, 7, 25, 5).ResetContext(1, 20).ResetContext(1, 50)
		}, kept{withContext: 7}, Counters{}},

		{"last release of a primary context", func(p *proc) {
			p.RetainContext(1, 5).RetainContext(1, 6).In(1).Alloc(1, a, 100, 10, 1).ReleaseContext(1,
				20).ReleaseContext(1, 30)
		}, kept{withContext: 100}, Counters{}},
		{"a release that is not the last", func(p *proc) {
			p.RetainContext(1, 5).RetainContext(1, 6).In(1).Alloc(1, a, 100, 10, 1).ReleaseContext(1, 20)
		}, kept{live: 100}, Counters{}},
		{"release without retain", func(p *proc) {
			p.In(1).Alloc(1, a, 100, 10, 1).ReleaseContext(1, 20).ReleaseContext(0, 21).ReleaseContext(2, 22)
		}, kept{live: 100, unknown: 3}, Counters{}},
		{"releases of a late process end nothing", func(p *proc) {
			p.Late = true
			p.RetainContext(1, 5).In(1).Alloc(1, a, 100, 10, 1).ReleaseContext(1, 20)
		}, kept{live: 100, unknown: 1}, Counters{}},
		{"destroys and resets of a late process end contexts", func(p *proc) {
			p.Late = true
			p.In(1).Alloc(1, a, 100, 10, 1).In(2).Alloc(1, b, 10, 11, 1).DestroyContext(1, 20, 1).ResetContext(2, 21)
		}, kept{withContext: 110}, Counters{}},
		{"reset leaves the users", func(p *proc) {
			p.RetainContext(1, 5).In(1).Alloc(1, a, 100, 10, 1).ResetContext(1, 20).RetainContext(1, 25)
			p.Alloc(1, b, 7, 30, 1).ReleaseContext(1, 40)
		}, kept{live: 7, withContext: 100}, Counters{}},
		{"a primary context is retained again under its handle", func(p *proc) {
			p.RetainContext(1, 5).In(1).Alloc(1, a, 100, 10, 1).ReleaseContext(1, 20).RetainContext(1, 25)
			p.Alloc(1, a, 7, 30, 1).ReleaseContext(1, 40)
		}, kept{withContext: 107}, Counters{}},
		{"retain of an unknown handle", func(p *proc) {
			p.RetainContext(0, 5).In(1).Alloc(1, a, 100, 10, 1)
		}, kept{live: 100, unknown: 1}, Counters{}},

		{"memory of a green context belongs to the primary context", func(p *proc) {
			p.GPU = &schema.GPU{UUID: "GPU-1"}
			p.RetainContext(1, 5).Call("cuGreenCtxCreate", 1, mem(6, 2, 0)).Call("cuCtxFromGreenCtx", 1,
				schema.Memory{Time: 7, Ptr: 2, Aux: 2})
			p.In(2).Alloc(1, a, 100, 10, 1).Call("cuGreenCtxDestroy", 1, mem(20, 2, 0))
		}, kept{live: 100}, Counters{}},
		{"the green context is the last user", func(p *proc) {
			p.GPU = &schema.GPU{UUID: "GPU-1"}
			p.RetainContext(1, 5).Call("cuGreenCtxCreate", 1, mem(6, 2, 0)).In(2).Alloc(1, a, 100, 10, 1)
			p.ReleaseContext(1, 15).Call("cuGreenCtxDestroy", 1, mem(20, 2, 0))
		}, kept{withContext: 100}, Counters{}},
		{"the retained context is the last user", func(p *proc) {
			p.GPU = &schema.GPU{UUID: "GPU-1"}
			p.Call("cuGreenCtxCreate", 1, mem(4, 2, 0)).RetainContext(1, 5).In(2).Alloc(1, a, 100, 10, 1)
			p.Call("cuGreenCtxDestroy", 1, mem(15, 2, 0)).ReleaseContext(1, 20)
		}, kept{withContext: 100}, Counters{}},
		{"a green context known by its other handle", func(p *proc) {
			p.GPU = &schema.GPU{UUID: "GPU-1"}
			p.RetainContext(1, 5).Call("cuGreenCtxCreate", 1, mem(6, 2, 0)).Call("cuCtxFromGreenCtx", 1,
				schema.Memory{Time: 7, Ptr: 3, Aux: 2})
			p.In(3).Alloc(1, a, 100, 10, 1).Call("cuGreenCtxDestroy", 1, mem(15, 2, 0)).ReleaseContext(1, 20)
		}, kept{withContext: 100}, Counters{}},

		{"exec begins with no contexts", func(p *proc) {
			p.RetainContext(1, 5).RetainContext(1, 6).In(1).Alloc(1, a, 100, 10, 1).Exec("other", 20)
			p.RetainContext(1, 25).Alloc(1, a, 7, 30, 1).ReleaseContext(1, 40)
		}, kept{withContext: 7}, Counters{}},
		{"more contexts than the limit", func(p *proc) {
			for i := range uint64(300) {
				p.CreateContext(100+i, 5, 1).In(100+i).Alloc(1, a+i<<9, 1, 10, 1)
			}
			p.DestroyContext(100, 20, 1).DestroyContext(399, 21, 1)
		}, kept{live: 299, withContext: 1, unknown: 45 + 2}, Counters{}},
		{"indexes of ended contexts are reused", func(p *proc) {
			for i := range uint64(600) {
				at := schema.KTime(10 + 10*i)
				p.CreateContext(100+i, at, 1).In(100+i).Alloc(1, a, 1, at+2, 1).DestroyContext(100+i, at+5, 1)
			}
		}, kept{withContext: 600}, Counters{}},

		{"destroying a graph or unloading a module frees nothing", func(p *proc) {
			p.Add(&schema.Call{Symbol: "cuGraphLaunch", Op: schema.OpAlloc, Class: schema.ClassGraph}, 1, mem(12, b, 4))
			p.Call("cuModuleLoadData", 1, mem(13, 0x77, 0)).Call("cuModuleUnload", 1, mem(14, 0x77, 0))
		}, kept{live: 4}, Counters{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			test.events(h.Process(42, 1, "train"))
			tracker := New(Config{})
			apply(t, tracker, h.Batch())
			r := tracker.Report()
			p := &r.Processes[0]
			for _, c := range p.Calls {
				if c.Symbol == "cuGraphLaunch" {
					t.Error("the nodes of a graph are counted as calls")
				}
			}
			if got := (kept{p.LiveBytes, p.HostLiveBytes, p.WithContextBytes,
				r.Counters.UnknownContexts}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			test.check.UnknownContexts = r.Counters.UnknownContexts
			if r.Counters != test.check {
				t.Errorf("counters %+v, want %+v", r.Counters, test.check)
			}
			balanced(t, tracker)
		})
	}
}

// balanced checks that allocated = freed + unfreed + live for every workload, and that the
// counts of every context and pool are correct.
func balanced(t *testing.T, tracker *Tracker) {
	t.Helper()
	live, rows := map[*workload]uint64{}, map[*workload]int{}
	for _, p := range tracker.table.All() {
		s := &p.State
		for i := range s.rows {
			live[s.rows[i].counter] += s.rows[i].live.bytes
			rows[s.rows[i].counter]++
		}
		contexts := make([]uint32, len(s.contexts))
		pools := make([]amount, len(s.pools))
		var n uint64
		s.addresses.sweep(&tracker.slab, func(a entry) bool {
			switch class := s.rows[a.row].class; {
			case a.kind == opened && a.owner != 0:
				contexts[a.owner]++
				return false
			case a.kind != memory:
				return false
			case endsWithContext(class):
				contexts[a.owner]++
			case a.owner != 0:
				pools[a.owner].add(a.bytes)
			}
			n++
			return false
		})
		for i, want := range contexts {
			if s.contexts[i].live != want {
				t.Errorf("context %d: %d live, want %d", i, s.contexts[i].live, want)
			}
		}
		for i, want := range pools {
			if s.pools[i].live != want {
				t.Errorf("pool %d: %+v live, want %+v", i, s.pools[i].live, want)
			}
		}
		if n > s.held {
			t.Errorf("%d held, %d of them at addresses", s.held, n)
		}
	}
	for _, w := range tracker.workloads.all() {
		if w.allocated != w.freed+w.unfreed+live[w] {
			t.Errorf("%s on %q: %d allocated, %d freed, %d unfreed, %d live", w.Comm, w.UUID, w.allocated, w.freed,
				w.unfreed, live[w])
		}
		if w.rows != rows[w] {
			t.Errorf("%s on %q: %d rows counted, want %d", w.Comm, w.UUID, w.rows, rows[w])
		}
		delete(live, w)
	}
	for w, bytes := range live {
		if bytes > 0 {
			t.Errorf("%d live bytes count for no listed workload: %+v", bytes, w)
		}
	}
}
