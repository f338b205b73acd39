package leak

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Report is a copy of the state at one moment.
type Report struct {
	Processes []Process // in order of first sight
	Totals    Totals
	Counters  Counters
}

// Totals are sums of GPU memory over the processes of a Report.
type Totals struct {
	LiveBytes, LiveAllocations uint64
	UnfreedBytes               uint64 // live when their process ended
}

// Counters count events that contradict the state, since the Tracker was created.
type Counters struct {
	UnmatchedFrees  uint64 // frees, unmaps and closes of memory whose allocation was not seen
	ReallocOverLive uint64 // allocations and mappings over live memory
	LateFrees       uint64 // frees of a life that such an allocation had already ended
	UnseenEnds      uint64 // lives whose end was never seen: ReallocOverLive minus LateFrees
	NullFrees       uint64 // free(0)
	// retains, releases and mappings of a handle whose creation was not seen or that has 65,534 mappings
	UnknownHandles  uint64
	UnknownContexts uint64 // context calls whose effect on memory is unknown
	UnknownOps      uint64 // calls that this version does not know
}

// Process is one process with its memory. Bytes are GPU memory unless the name says Host.
type Process struct {
	process.Info
	Ended    bool
	Evidence string // complete, gap or late; gap if both apply

	LiveBytes, LiveAllocations               uint64
	PeakBytes                                uint64 // the most that was live at once
	UnfreedBytes, UnfreedAllocations         uint64 // live when the process ended or replaced its image
	HostLiveBytes, HostLiveAllocations       uint64
	HostUnfreedBytes, HostUnfreedAllocations uint64
	WithContextBytes, WithContextAllocations uint64 // freed by the end of their CUDA context

	HolderCount     uint64   // memory that it opened and did not close
	Holders         []Holder // the newest 100
	UnclosedHolders uint64   // open when the process ended or replaced its image
	Exports         uint64   // calls that made memory available to other processes
	Pools           []Pool   // in order of first use

	Calls []process.Call // in order of first use
	GPUs  []GPUUse       // by ordinal
	// Verdicts are those of the GPUs on which the process ever held memory, in order of first use. An ended process
	// keeps its last ones.
	Verdicts []Verdict
	Threads  []ThreadUse               // with live GPU memory, largest first
	Classes  [schema.NumClasses]uint64 // live bytes by schema.MemClass
}

// ThreadUse is the live GPU memory that one thread allocated. Another thread may free it.
type ThreadUse struct {
	TID                        uint32
	Comm                       string
	LiveBytes, LiveAllocations uint64
}

// GPUUse is the memory of a process on one GPU.
type GPUUse struct {
	UUID                       string // "": unknown
	Ordinal                    int    // in the process's numbering; -1: unknown
	Inferred                   bool   // the producer inferred the GPU; the program did not name it
	LiveBytes, LiveAllocations uint64
	PeakBytes                  uint64 // the most that was live at once
	PeakAt                     time.Time
	TotalBytes                 uint64   // of the whole GPU, as the driver told any process of the host; 0: unknown
	Info                       *MemInfo // nil if the process never called cuMemGetInfo
}

// MemInfo is the latest answer of cuMemGetInfo, with the live bytes at that moment.
type MemInfo struct {
	At                    time.Time
	UsedBytes, TotalBytes uint64 // of the whole GPU
	ProcessBytes          uint64 // live bytes of the process
	TrackedBytes          uint64 // live bytes of all processes of the host; of this process while the UUID is unknown
}

// Unexplained returns used minus tracked bytes: contexts, code, memory of libraries, and processes that ran before
// gputap attached. It is negative if live memory is not resident, which managed memory may be.
func (i *MemInfo) Unexplained() int64 { return int64(i.UsedBytes) - int64(i.TrackedBytes) }

// Holder is memory of another process or another API that a process opened.
type Holder struct {
	Ptr   uint64 // address or handle; 0: only mappings keep it
	Class schema.MemClass
	Token uint64 // token or file descriptor that it was opened by
	Owner uint32 // PID of the process on the same host that exported the token; 0: unknown
	At    time.Time
}

// Pool is a memory pool that the process created, imported, allocated from or queried.
type Pool struct {
	Handle                     uint64
	Ordinal                    int    // of the GPU in the process's numbering; -1: unknown
	Limit                      uint64 // bytes; 0: no limit
	Imported, Destroyed        bool
	LiveBytes, LiveAllocations uint64    // allocated from it by its handle
	ReservedBytes, UsedBytes   uint64    // as the driver reported them to the process
	ReservedAt, UsedAt         time.Time // time of that report; zero: never
}

const maxHolders = 100 // in the report of one process

// Report copies the state. It costs time per process and thread, not per allocation.
func (t *Tracker) Report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.table.All()
	r := Report{Processes: make([]Process, 0, len(all)), Counters: t.counters}
	c, q := &r.Counters, &t.quality
	c.UnmatchedFrees, c.ReallocOverLive, c.LateFrees, c.UnknownContexts = q[unmatchedFree], q[reallocOverLive],
		q[lateFree], q[unknownContext]
	c.UnseenEnds = c.ReallocOverLive - min(c.ReallocOverLive, c.LateFrees)
	threads := t.threadUses()
	for _, p := range all {
		out := t.report(p)
		out.Holders, out.Threads = t.reportHolders(p), threads[p]
		r.Processes = append(r.Processes, out)
		r.Totals.LiveBytes += p.State.live.bytes
		r.Totals.LiveAllocations += p.State.live.allocations
		r.Totals.UnfreedBytes += p.State.unfreed.bytes
	}
	return r
}

// threadUses returns the threads with live GPU memory by process, largest first.
func (t *Tracker) threadUses() map[*proc][]ThreadUse {
	uses := map[*proc][]ThreadUse{}
	for i := range t.threads.slots {
		if s := &t.threads.slots[i]; s.gpu.allocations > 0 {
			uses[s.process] = append(uses[s.process], ThreadUse{s.tid, s.comm, s.gpu.bytes, s.gpu.allocations})
		}
	}
	for _, list := range uses {
		slices.SortFunc(list, func(a, b ThreadUse) int {
			return cmp.Or(cmp.Compare(b.LiveBytes, a.LiveBytes), cmp.Compare(a.TID, b.TID), cmp.Compare(a.Comm, b.Comm))
		})
	}
	return uses
}

func (t *Tracker) report(p *proc) Process {
	s := &p.State
	out := Process{
		Info:  p.Info,
		Ended: p.Ended, Evidence: evidence(p),
		LiveBytes: s.live.bytes, LiveAllocations: s.live.allocations, PeakBytes: s.peak,
		UnfreedBytes: s.unfreed.bytes, UnfreedAllocations: s.unfreed.allocations,
		HostLiveBytes: s.hostLive.bytes, HostLiveAllocations: s.hostLive.allocations,
		HostUnfreedBytes: s.hostUnfreed.bytes, HostUnfreedAllocations: s.hostUnfreed.allocations,
		WithContextBytes: s.withContext.bytes, WithContextAllocations: s.withContext.allocations,
		HolderCount: s.holders, UnclosedHolders: s.unclosed, Exports: s.exports, Pools: s.reportPools(),
		Calls: p.Calls.Clone(),
	}
	for i := range s.rows {
		r := &s.rows[i]
		out.Classes[r.class] += r.live.bytes
		if r.class.OnGPU() {
			out.addGPU(r)
		}
	}
	for i := range s.samples {
		out.addInfo(s.boot, &s.samples[i])
	}
	for i := range s.devices {
		d := &s.devices[i]
		g := out.gpu(d.gpu)
		g.PeakBytes, g.PeakAt = d.peak, s.boot.wall(d.peakAt)
		out.Verdicts = append(out.Verdicts, t.verdict(p, d))
	}
	for i := range out.GPUs {
		out.GPUs[i].TotalBytes, _ = s.capacity(int32(out.GPUs[i].Ordinal))
	}
	slices.SortFunc(out.GPUs, func(a, b GPUUse) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return out
}

func (p *Process) gpu(ordinal int32) *GPUUse {
	i := slices.IndexFunc(p.GPUs, func(g GPUUse) bool { return g.Ordinal == int(ordinal) })
	if i < 0 {
		i = len(p.GPUs)
		p.GPUs = append(p.GPUs, GPUUse{Ordinal: int(ordinal), Inferred: true})
	}
	return &p.GPUs[i]
}

func (p *Process) addGPU(r *row) {
	g := p.gpu(r.gpu)
	// the rows of some classes may not know the UUID yet
	if g.UUID == "" || (g.Inferred && !r.inferred && r.uuid != "") {
		g.UUID = r.uuid
	}
	g.Inferred = g.Inferred && r.inferred
	g.LiveBytes += r.live.bytes
	g.LiveAllocations += r.live.allocations
}

// gpuUse returns the memory of a process on one GPU.
func (s *state) gpuUse(gpu int32) GPUUse {
	p := Process{}
	for i := range s.rows {
		if r := &s.rows[i]; r.gpu == gpu && r.class.OnGPU() {
			p.addGPU(r)
		}
	}
	return *p.gpu(gpu)
}

func (p *Process) addInfo(h *boot, s *sample) {
	g := p.gpu(s.gpu)
	if g.UUID == "" {
		g.UUID, g.Inferred = s.uuid, s.inferred
	}
	g.Info = &MemInfo{
		At: h.wall(s.at), UsedBytes: s.used, TotalBytes: s.total, ProcessBytes: s.own, TrackedBytes: s.all,
	}
}

func (t *Tracker) reportHolders(p *proc) (list []Holder) {
	h := p.State.boot
	for i := p.State.newestHolder; i != 0 && len(list) < maxHolders; i = t.slab.at(i).next {
		a := t.slab.at(i)
		ptr := a.key
		if a.refs == 0 {
			ptr = 0
		}
		list = append(list, Holder{ptr, p.State.rows[a.row].class, a.bytes, h.exports.owners[a.bytes], h.wall(a.since)})
	}
	return list
}

func (s *state) reportPools() (list []Pool) {
	for i := range s.pools {
		q := &s.pools[i]
		if i == 0 || (q.destroyed && q.live.allocations == 0) {
			continue
		}
		list = append(list, Pool{
			Handle: q.handle, Ordinal: int(q.gpu), Limit: q.limit, Imported: q.imported, Destroyed: q.destroyed,
			LiveBytes: q.live.bytes, LiveAllocations: q.live.allocations,
			ReservedBytes: q.reserved.bytes, ReservedAt: s.boot.wall(q.reserved.at),
			UsedBytes: q.used.bytes, UsedAt: s.boot.wall(q.used.at),
		})
	}
	return list
}
