package report

import (
	"time"

	"github.com/gputap/gputap/consumer/anomaly"
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

	byID     map[schema.ProcessID]*Process
	features features
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
	Cluster            string            `json:"cluster"`
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
	TopKernels           []KernelRate       `json:"top_kernels"` // most launched first
	Graphs               []GraphRate        `json:"graphs"`
	Gaps                 []LaunchGaps       `json:"launch_gaps"`
	CopyGroups           []CopyGroup        `json:"copy_groups"`
	Unseen               Unseen             `json:"unseen"`
	Torch                map[string]*Torch  `json:"torch"` // by GPU
	Verdicts             []Verdict          `json:"verdicts"`
	Heard                *time.Time         `json:"heard"` // when NATS stored the last batch of its host; null: unknown
	Job                  string             `json:"job"`
	Rank                 *uint32            `json:"rank"`                          // null if unknown
	Largest              []Allocation       `json:"largest_allocations,omitempty"` // of gputap describe only

	id       schema.ProcessID
	silent   bool    // its host is: the figures are old
	told     figures // by folds that answered about the process
	lacks    figures // that are unknown: their folds did not answer about the process
	features features
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

	total uint64
}

// TotalBytes returns the memory of the whole GPU, as the process was told; 0: unknown.
func (g *GPU) TotalBytes() uint64 { return g.total }

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

// MemoryInfo is the last result of cuMemGetInfo in a process, and gputap's live memory of that GPU at the same time.
type MemoryInfo struct {
	Time         time.Time `json:"time"`
	UsedBytes    uint64    `json:"used_bytes"`
	TotalBytes   uint64    `json:"total_bytes"`
	ProcessBytes uint64    `json:"process_bytes"`
	TrackedBytes uint64    `json:"tracked_bytes"`     // of all processes of the host
	Unexplained  int64     `json:"unexplained_bytes"` // UsedBytes - TrackedBytes
}

// Holders are references to memory of others that the process opened and did not close.
type Holders struct {
	Count          uint64   `json:"count"`
	UnclosedAtExit uint64   `json:"unclosed_at_exit"`
	List           []Holder `json:"list"` // the newest 100
}

// Holder is one reference to memory of another process or API.
type Holder struct {
	Address  string    `json:"address"` // or handle; "" if only mappings hold the memory
	Class    string    `json:"class"`
	Token    string    `json:"token"`
	OwnerPID uint32    `json:"owner_pid"` // 0 if unknown
	Since    time.Time `json:"since"`
}

// Pool is a memory pool of a process.
type Pool struct {
	Handle          string     `json:"handle"`
	Ordinal         int        `json:"ordinal"` // of the GPU as the process numbers it; -1 if unknown
	Imported        bool       `json:"imported"`
	Destroyed       bool       `json:"destroyed"`
	LimitBytes      uint64     `json:"limit_bytes"`
	LiveBytes       uint64     `json:"live_bytes"`
	LiveAllocations uint64     `json:"live_allocations"`
	ReservedBytes   uint64     `json:"reserved_bytes"`
	ReservedTime    *time.Time `json:"reserved_time"` // null if the process never asked
	UsedBytes       uint64     `json:"used_bytes"`
	UsedTime        *time.Time `json:"used_time"`
}

// Kernel counts the launches of one kernel name.
type Kernel struct {
	Launches   uint64 `json:"launches"`
	FromGraphs uint64 `json:"from_graphs"`
	NameSource string `json:"name_source"` // told, read or unknown
}

// Host is a host with its last heartbeat.
type Host struct {
	Cluster       string            `json:"cluster"`
	Host          string            `json:"host"`
	Heard         *time.Time        `json:"heard"`      // when NATS stored its last batch
	LastEvent     *time.Time        `json:"last_event"` // null before its first event
	Linux         string            `json:"linux"`
	Producer      string            `json:"producer"`
	Lost          map[string]uint64 `json:"lost"`
	LateProcesses int               `json:"late_processes"`
	GPUs          []HostGPU         `json:"gpus"`
	Libraries     []HostLibrary     `json:"libraries"`
}

// HostGPU is one GPU of a host.
type HostGPU struct {
	UUID  string  `json:"uuid"`
	Minor *uint32 `json:"minor"` // null: unknown
	Name  string  `json:"name"`
	Bus   string  `json:"bus"`
}

// HostLibrary is one driver library on a host, with its numbers of probes.
type HostLibrary struct {
	Path     string   `json:"path"`
	Attached uint32   `json:"attached"`
	Stepped  uint32   `json:"stepped"`
	Absent   []string `json:"absent"`
	Failed   []string `json:"failed"`
}

// Unseen counts the functions that a process got from the driver and that have no probe.
type Unseen struct {
	Asked        uint32   `json:"asked"`
	Functions    []string `json:"functions"`
	ExportTables uint32   `json:"export_tables"`
}
