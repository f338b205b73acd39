package pipeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Snapshot is one line of `gputap run -o json`.
type Snapshot struct {
	Time      time.Time         `json:"time"`
	Final     bool              `json:"final"`
	Lost      map[string]uint64 `json:"lost"` // events by cause; empty if none was lost
	Processes []*Process        `json:"processes"`
	Alerts    []anomaly.Alert   `json:"alerts"`
	Counters  Counters          `json:"counters"`
	Hosts     []Host            `json:"hosts"`
}

// Process is one process with the figures of all folds.
type Process struct {
	PID                uint32            `json:"pid"`
	Start              time.Time         `json:"start"`
	Comm               string            `json:"comm"`
	Exe                string            `json:"exe"`
	UID                uint32            `json:"uid"`
	Container          string            `json:"container"`
	Host               string            `json:"host"`
	Ended              bool              `json:"ended"`
	Evidence           string            `json:"evidence"`
	LiveBytes          uint64            `json:"live_bytes"`
	LiveAllocations    uint64            `json:"live_allocations"`
	PeakBytes          uint64            `json:"peak_bytes"`
	UnfreedBytes       uint64            `json:"unfreed_at_exit_bytes"`
	UnfreedAllocations uint64            `json:"unfreed_at_exit_allocations"`
	HostMemory         HostMemory        `json:"host_memory"`
	Calls              map[string]*Call  `json:"calls"`
	GPUs               map[string]*GPU   `json:"gpus"`
	Threads            []Thread          `json:"threads"`
	Launches           map[string]uint64 `json:"launches"`
	GraphLaunches      uint64            `json:"graph_launches"`
	Copies             map[string]*Copy  `json:"copies"`
	User               string            `json:"user"`
	Pod                string            `json:"pod"`
	Unit               string            `json:"unit"`
	Cgroup             string            `json:"cgroup"`
	NSPID              uint32            `json:"nspid"`
	Classes            map[string]uint64 `json:"classes"`
	ContextBytes       uint64            `json:"freed_with_context_bytes"`
	ContextAllocations uint64            `json:"freed_with_context_allocations"`
	Holders            Holders           `json:"holders"`
	Exports            uint64            `json:"exports"`
	Pools              []Pool            `json:"pools"`

	Kernels              map[string]*Kernel `json:"kernels"`
	GraphLaunchesPartial uint64             `json:"graph_launches_partial"`
	HostFuncs            uint64             `json:"host_functions"`
	Recorded             uint64             `json:"recorded"` // launches, copies and sets
	Waits                Waits              `json:"waits"`
	Unseen               Unseen             `json:"unseen"`

	id schema.ProcessID
}

// ID returns the identity of the process.
func (p *Process) ID() schema.ProcessID { return p.id }

// HostMemory is the live pinned and registered host memory of a process.
type HostMemory struct {
	LiveBytes       uint64 `json:"live_bytes"`
	LiveAllocations uint64 `json:"live_allocations"`
	PinnedBytes     uint64 `json:"pinned_bytes"`
	RegisteredBytes uint64 `json:"registered_bytes"`
}

// Waits sums the calls that waited for the GPU.
type Waits struct {
	Calls   uint64  `json:"calls"`
	Seconds float64 `json:"seconds"` // summed over threads
}

// Call counts the calls of one symbol by result.
type Call struct {
	OK       uint64            `json:"ok"`
	Failed   uint64            `json:"failed"`
	Errors   map[uint32]uint64 `json:"errors,omitempty"` // by CUresult
	Recorded uint64            `json:"recorded,omitempty"`
}

// GPU is the live memory of a process on one GPU.
type GPU struct {
	LiveBytes uint64      `json:"live_bytes"`
	Inferred  bool        `json:"inferred"`
	Info      *MemoryInfo `json:"memory_info,omitempty"`
}

// Thread is the live GPU memory that one thread allocated.
type Thread struct {
	TID             uint32 `json:"tid"`
	Comm            string `json:"comm"`
	LiveBytes       uint64 `json:"live_bytes"`
	LiveAllocations uint64 `json:"live_allocations"`
}

// Copy sums the copies of one direction.
type Copy struct {
	Calls       uint64  `json:"calls"`
	Bytes       uint64  `json:"bytes"`
	BusySeconds float64 `json:"busy_seconds"` // host time in synchronous copies
	AsyncCalls  uint64  `json:"async_calls"`  // calls that only submitted a copy; included in Calls
	AsyncBytes  uint64  `json:"async_bytes"`
}

// Counters count records that contradict each other or refer to unknown things.
type Counters struct {
	UnmatchedFrees  uint64 `json:"unmatched_frees"`
	ReallocOverLive uint64 `json:"realloc_over_live"`
	LateFrees       uint64 `json:"late_frees"`
	UnseenEnds      uint64 `json:"unseen_ends"`
	NullFrees       uint64 `json:"null_frees"`
	UnknownHandles  uint64 `json:"unknown_handles"`
	UnknownContexts uint64 `json:"unknown_contexts"`
}

const unknown = "unknown"

// merge joins the reports of the folds by process identity.
func merge(l leak.Report, h []launch.Process, m []bandwidth.Process, alerts []anomaly.Alert,
	lost map[string]uint64) *Snapshot {
	s := &Snapshot{Time: time.Now().UTC(), Lost: lost, Alerts: alerts, Processes: []*Process{}}
	if s.Alerts == nil {
		s.Alerts = []anomaly.Alert{}
	}
	s.Counters = Counters{
		UnmatchedFrees: l.Counters.UnmatchedFrees, ReallocOverLive: l.Counters.ReallocOverLive,
		LateFrees: l.Counters.LateFrees, UnseenEnds: l.Counters.UnseenEnds, NullFrees: l.Counters.NullFrees,
		UnknownHandles: l.Counters.UnknownHandles, UnknownContexts: l.Counters.UnknownContexts,
	}
	byID := map[schema.ProcessID]*Process{}
	find := func(info *process.Info) *Process {
		p := byID[info.ID]
		if p == nil {
			p = newProcess(info)
			byID[info.ID] = p
			s.Processes = append(s.Processes, p)
		}
		return p
	}
	for i := range l.Processes {
		q := &l.Processes[i]
		p := find(&q.Info)
		p.memory(q)
	}
	for i := range h {
		q := &h[i]
		p := find(&q.Info)
		p.calls(q.Calls)
		p.GraphLaunches = q.GraphLaunches
		for _, k := range q.Funcs {
			p.kernel(&k)
		}
		p.GraphLaunchesPartial, p.HostFuncs = q.GraphLaunchesPartial, q.HostFuncs
		p.Recorded += q.Recorded
	}
	for i := range m {
		q := &m[i]
		p := find(&q.Info)
		p.calls(q.Calls)
		for _, c := range q.Copies {
			p.Copies[c.Word()] = &Copy{
				Calls: c.Calls, Bytes: c.Bytes, BusySeconds: float64(c.BusyNS) / 1e9, AsyncCalls: c.AsyncCalls,
				AsyncBytes: c.AsyncBytes,
			}
		}
		p.Recorded += q.Recorded
		p.Waits = Waits{Calls: q.Waits.Calls, Seconds: float64(q.Waits.NS) / 1e9}
	}
	slices.SortStableFunc(s.Processes, func(a, b *Process) int {
		return cmp.Or(cmp.Compare(b.LiveBytes, a.LiveBytes), a.Start.Compare(b.Start), cmp.Compare(a.PID, b.PID))
	})
	return s
}

func newProcess(info *process.Info) *Process {
	p := &Process{
		PID: info.ID.PID, Start: info.Start, Comm: info.Comm, Exe: info.Exe, UID: info.UID, Container: info.Container,
		Host: info.ID.Host, Evidence: "complete", Calls: map[string]*Call{}, GPUs: map[string]*GPU{},
		Launches: map[string]uint64{}, Copies: map[string]*Copy{}, Threads: []Thread{}, id: info.ID,
		User: info.User, Pod: info.Pod, Unit: info.Unit, Cgroup: info.Cgroup, NSPID: info.NSPID,
		Classes: map[string]uint64{}, Holders: Holders{List: []Holder{}}, Pools: []Pool{},
		Kernels: map[string]*Kernel{},
	}
	if info.Late {
		p.Evidence = "late"
	}
	return p
}

func (p *Process) memory(q *leak.Process) {
	p.Ended, p.Evidence = q.Ended, q.Evidence
	p.LiveBytes, p.LiveAllocations, p.PeakBytes = q.LiveBytes, q.LiveAllocations, q.PeakBytes
	p.UnfreedBytes, p.UnfreedAllocations = q.UnfreedBytes, q.UnfreedAllocations
	p.HostMemory = HostMemory{
		q.HostLiveBytes, q.HostLiveAllocations, q.Classes[schema.ClassPinned], q.Classes[schema.ClassRegistered],
	}
	p.details(q)
	p.calls(q.Calls)
	for _, t := range q.Threads {
		p.Threads = append(p.Threads, Thread(t))
	}
	for _, g := range q.GPUs {
		uuid := cmp.Or(g.UUID, unknown)
		if p.GPUs[uuid] == nil {
			p.GPUs[uuid] = &GPU{Inferred: g.Inferred}
		}
		p.GPUs[uuid].LiveBytes += g.LiveBytes
		p.GPUs[uuid].Inferred = p.GPUs[uuid].Inferred && g.Inferred
		if g.Info != nil {
			p.GPUs[uuid].Info = newMemoryInfo(g.Info)
		}
	}
}

// calls adds the calls. Records of exec and exit are not calls.
func (p *Process) calls(list []process.Call) {
	for i := range list {
		c := &list[i]
		if c.Op == schema.OpExit || c.Op == schema.OpExec {
			continue
		}
		p.Calls[c.Symbol] = &Call{OK: c.OK, Failed: c.Failed, Errors: c.Errors, Recorded: c.Recorded}
	}
}
