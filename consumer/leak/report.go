package leak

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Report is the state at one moment. It shares nothing with the Tracker.
type Report struct {
	Processes []Process // in order of first sight
	Totals    Totals
	Counters  Counters
}

// Totals sums over the processes of a Report.
type Totals struct {
	LiveBytes, LiveAllocations         uint64 // GPU memory
	HostLiveBytes, HostLiveAllocations uint64 // pinned host memory
	UnfreedBytes, UnfreedAllocations   uint64 // GPU memory that was live when its process ended
}

// Counters say how well the records fit together. They count since the Tracker was made.
type Counters struct {
	UnmatchedFrees  uint64 // frees and unmaps of what was never seen
	ReallocOverLive uint64 // allocations and mappings over a live one
	LateFrees       uint64 // frees whose life such an allocation had ended already
	UnseenEnds      uint64 // lives whose end was never seen: ReallocOverLive less LateFrees
	NullFrees       uint64 // free(0)
	UnknownHandles  uint64 // releases and mappings of a handle whose creation was not seen
	UnknownOps      uint64 // calls that this version does not know
}

// Process is one process and what it holds. Bytes are GPU memory unless the name says Host.
type Process struct {
	ID        schema.ProcessID
	Start     time.Time
	UID       uint32
	Comm      string
	Exe       string
	Container string
	Ended     bool
	Late      bool   // was running before gputap was attached
	Evidence  string // complete, gap or late; gap when both

	LiveBytes, LiveAllocations               uint64
	PeakBytes                                uint64 // the most that was live at once
	UnfreedBytes, UnfreedAllocations         uint64 // live when it ended or replaced its image
	HostLiveBytes, HostLiveAllocations       uint64
	HostUnfreedBytes, HostUnfreedAllocations uint64

	Calls   []process.Call            // in order of first use
	GPUs    []GPUUse                  // by ordinal
	Threads []ThreadUse               // with live GPU memory, the most first
	Classes [schema.NumClasses]uint64 // live bytes by schema.MemClass
}

// ThreadUse is the live GPU memory that one thread allocated, whoever is to free it.
type ThreadUse struct {
	TID                        uint32
	Comm                       string
	LiveBytes, LiveAllocations uint64
}

// GPUUse is what a process holds on one GPU.
type GPUUse struct {
	UUID                       string // "" unknown
	Ordinal                    int    // in the process's numbering; -1 unknown
	LiveBytes, LiveAllocations uint64
}

// Report copies the state. Its cost grows with processes and threads, not with what they hold.
func (t *Tracker) Report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.table.All()
	r := Report{Processes: make([]Process, 0, len(all)), Counters: t.counters}
	if t.counters.ReallocOverLive > t.counters.LateFrees {
		r.Counters.UnseenEnds = t.counters.ReallocOverLive - t.counters.LateFrees
	}
	for _, p := range all {
		r.Processes = append(r.Processes, report(p))
		s := &p.State
		r.Totals.LiveBytes += s.live.bytes
		r.Totals.LiveAllocations += s.live.allocations
		r.Totals.HostLiveBytes += s.hostLive.bytes
		r.Totals.HostLiveAllocations += s.hostLive.allocations
		r.Totals.UnfreedBytes += s.unfreed.bytes
		r.Totals.UnfreedAllocations += s.unfreed.allocations
	}
	t.reportThreads(&r, all)
	return r
}

func (t *Tracker) reportThreads(r *Report, all []*proc) {
	index := make(map[*proc]int, len(all))
	for i, p := range all {
		index[p] = i
	}
	for i := range t.threads.slots {
		s := &t.threads.slots[i]
		at, known := index[s.process]
		if s.gpu.allocations == 0 || !known {
			continue
		}
		p := &r.Processes[at]
		p.Threads = append(p.Threads, ThreadUse{
			TID: s.tid, Comm: s.comm, LiveBytes: s.gpu.bytes, LiveAllocations: s.gpu.allocations,
		})
	}
	for i := range r.Processes {
		slices.SortFunc(r.Processes[i].Threads, func(a, b ThreadUse) int {
			return cmp.Or(cmp.Compare(b.LiveBytes, a.LiveBytes), cmp.Compare(a.TID, b.TID))
		})
	}
}

func report(p *proc) Process {
	s := &p.State
	out := Process{
		ID: p.ID, Start: p.Start, UID: p.UID, Comm: p.Comm, Exe: p.Exe, Container: p.Container,
		Ended: p.Ended, Late: p.Late, Evidence: evidence(p),
		LiveBytes: s.live.bytes, LiveAllocations: s.live.allocations, PeakBytes: s.peak,
		UnfreedBytes: s.unfreed.bytes, UnfreedAllocations: s.unfreed.allocations,
		HostLiveBytes: s.hostLive.bytes, HostLiveAllocations: s.hostLive.allocations,
		HostUnfreedBytes: s.hostUnfreed.bytes, HostUnfreedAllocations: s.hostUnfreed.allocations,
		Calls: p.Calls.Clone(),
	}
	for i := range s.rows {
		r := &s.rows[i]
		out.Classes[r.class] += r.live.bytes
		if r.class.OnGPU() {
			out.addGPU(r)
		}
	}
	slices.SortFunc(out.GPUs, func(a, b GPUUse) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return out
}

func (p *Process) addGPU(r *row) {
	i := slices.IndexFunc(p.GPUs, func(g GPUUse) bool { return g.Ordinal == int(r.gpu) })
	if i < 0 {
		i = len(p.GPUs)
		p.GPUs = append(p.GPUs, GPUUse{Ordinal: int(r.gpu)})
	}
	g := &p.GPUs[i]
	g.UUID = max(g.UUID, r.uuid) // a class may not have learned it yet
	g.LiveBytes += r.live.bytes
	g.LiveAllocations += r.live.allocations
}
