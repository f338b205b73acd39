package process

import (
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// hostCall is a memory record of process 1, by symbol.
func hostCall(t testing.TB, symbol string, at, ptr, bytes uint64) *bpf.MemoryRecord {
	t.Helper()
	for id := range schema.Calls {
		if schema.Calls[id].Symbol == symbol {
			return &bpf.MemoryRecord{
				Head: bpf.Head{Type: bpf.RecordMemory, Call: uint16(id), TGID: 1 << 30, TID: 1 << 30, ThreadStart: 1,
					Time: at, CUDAContext: 7},
				Duration: 2, Ptr: ptr, Bytes: bytes,
			}
		}
	}
	t.Fatalf("no call %s", symbol)
	return nil
}

func TestHostMem(t *testing.T) {
	t.Parallel()
	const pageable, pinned, unknown = schema.HostMemPageable, schema.HostMemPinned, schema.HostMemUnknown
	const gpu = 1 << 40
	table := NewTable(noLibraries{})
	for _, m := range []*bpf.MemoryRecord{
		hostCall(t, "cuDevicePrimaryCtxRetain", 1, 7, 0),
		hostCall(t, "cuMemHostAlloc", 10, 1000, 100),
		hostCall(t, "cuMemHostRegister_v2", 10, 2000, 100),
		hostCall(t, "cuMemAllocManaged", 10, 3000, 100),
		hostCall(t, "cuMemAlloc_v2", 10, 4000, 100),
		hostCall(t, "cuMemFreeHost", 50, 1000, 0),
		hostCall(t, "cuMemHostUnregister", 50, 2000, 0),
		hostCall(t, "cuMemFree_v2", 50, 3000, 0),
		hostCall(t, "cuMemHostAlloc", 60, 1050, 10),
		hostCall(t, "cuMemHostAlloc", 60, 5000, 10),
		hostCall(t, "cuDevicePrimaryCtxRelease_v2", 80, 0, 0),
	} {
		table.LearnMemory(m)
	}
	p := table.byPID[1<<30]
	tests := []struct {
		name         string
		way          schema.Direction
		dst, src, at uint64
		want         schema.HostMem
	}{
		{"pinned", schema.HtoD, gpu, 1099, 20, pinned},
		{"before its allocation returned", schema.HtoD, gpu, 1000, 11, pageable},
		{"behind its end", schema.HtoD, gpu, 1100, 20, pageable},
		{"after its free", schema.HtoD, gpu, 1000, 50, pageable},
		{"in a later block inside the freed one", schema.HtoD, gpu, 1055, 70, pinned},
		{"registered", schema.DtoH, 2050, gpu, 20, pinned},
		{"unregistered", schema.DtoH, 2050, gpu, 50, pageable},
		{"managed", schema.DtoH, 3000, gpu, 20, pinned},
		{"freed managed", schema.DtoH, 3000, gpu, 51, pageable},
		{"the destination of an upload does not matter", schema.HtoD, 1000, 9, 20, pageable},
		{"on the host from pageable", schema.HtoH, 1000, 9, 20, pageable},
		{"on the host between pinned", schema.HtoH, 1000, 2000, 20, pinned},
		{"on a GPU", schema.DtoD, 1000, 2000, 20, unknown},
		{"the driver decides, pinned", schema.DirDefault, gpu, 1000, 20, pinned},
		{"the driver decides, managed", schema.DirDefault, gpu, 3000, 20, unknown},
		{"the driver decides, neither known", schema.DirDefault, gpu, 9, 20, unknown},
		{"its context exists", schema.HtoD, gpu, 5000, 79, pinned},
		{"its context ended", schema.HtoD, gpu, 5000, 80, pageable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := p.HostMem(tt.way, tt.dst, tt.src, tt.at); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// If allocations are missing, memory of no known range is unknown, not pageable.
func TestHostMemIsUnknownWithGaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		cause func(table *Table, p *Process)
	}{
		{"late", func(_ *Table, p *Process) { p.Late = true }},
		{"lost records", func(table *Table, _ *Process) { table.Vanished(1) }},
		{"discarded handles", func(_ *Table, p *Process) { p.discard(); p.reached = []hostRange{{ptr: 1, end: 2}} }},
		{"too many ranges", func(table *Table, _ *Process) {
			for i := range uint64(maxReached + 1) {
				table.LearnMemory(hostCall(t, "cuMemHostAlloc", 1, 1+i, 1))
			}
		}},
	} {
		table := NewTable(noLibraries{})
		table.LearnMemory(hostCall(t, "cuMemHostAlloc", 1, 1, 1))
		p := table.byPID[1<<30]
		if got := p.HostMem(schema.HtoD, 0, 1<<20, 9); got != schema.HostMemPageable {
			t.Errorf("%s: before %s", tt.name, got)
		}
		tt.cause(table, p)
		got, known := p.HostMem(schema.HtoD, 0, 1<<20, 9), p.HostMem(schema.HtoD, 0, 1, 9)
		if got != schema.HostMemUnknown || known != schema.HostMemPinned || len(p.reached) > maxReached {
			t.Errorf("%s: %s and %s, %d ranges", tt.name, got, known, len(p.reached))
		}
	}
}

// TestHostMemModel compares with a list of all lives of all ranges.
func TestHostMemModel(t *testing.T) {
	t.Parallel()
	type life struct{ ptr, end, since, until uint64 }
	r := rand.New(rand.NewPCG(5, 5))
	table, lives := NewTable(noLibraries{}), []life{}
	pinned := func(ptr, at uint64) bool {
		for _, l := range lives {
			if ptr >= l.ptr && ptr < l.end && at >= l.since && (l.until == 0 || at < l.until) {
				return true
			}
		}
		return false
	}
	for now := uint64(10); now < 20_000; now += 10 {
		slot := r.IntN(20)
		ptr := uint64(1000 * (1 + slot))
		live := -1
		for i, l := range lives {
			if l.ptr == ptr && l.until == 0 {
				live = i
			}
		}
		if live >= 0 {
			lives[live].until = now
			table.LearnMemory(hostCall(t, "cuMemFreeHost", now, ptr, 0))
		} else {
			bytes := 1 + r.Uint64N(1000)
			lives = append(lives, life{ptr, ptr + bytes, now + 2, 0})
			table.LearnMemory(hostCall(t, "cuMemHostAlloc", now, ptr, bytes))
		}
		for range 5 {
			ptr, at := r.Uint64N(22_000), now-min(now, r.Uint64N(900))
			want := schema.HostMemPageable
			if pinned(ptr, at) {
				want = schema.HostMemPinned
			}
			if got := table.byPID[1<<30].HostMem(schema.HtoD, 0, ptr, at); got != want {
				t.Fatalf("%d at %d, now %d: %s, want %s", ptr, at, now, got, want)
			}
		}
	}
}
