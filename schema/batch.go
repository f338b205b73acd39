package schema

import (
	"slices"
	"time"
)

// KTime is nanoseconds since the boot of one host (CLOCK_BOOTTIME). KTimes of two hosts do not compare. Header.Wall
// turns one into wall time.
type KTime uint64

// Kind says which events a batch has.
type Kind uint8

// Kinds of batches.
const (
	KindNone   Kind = iota
	KindMemory      // allocations, frees, mappings, ends of contexts and processes, in the order of their returns
	KindLaunch      // kernel and graph launches
	KindCopy        // copies and sets
	KindSync        // waits for the GPU, CUDA events and CUDA streams
	KindTensor      // blocks of PyTorch's caching allocator
	KindHost        // heartbeat of a host: no events
	KindRank        // what the ranks of a job did in a window; a consumer publishes it, not a producer
	NumKinds
)

var kindWords = [NumKinds]string{
	KindNone: "", KindMemory: "memory", KindLaunch: "launch", KindCopy: "copy", KindSync: "sync",
	KindTensor: "tensor", KindHost: "host", KindRank: "rank",
}

// String returns the word on the wire and in subjects.
func (k Kind) String() string { return word(kindWords[:], int(k)) }

// ParseKind is the inverse of String. An unknown word is KindNone.
func ParseKind(s string) Kind { return Kind(wordIndex(kindWords[:], s)) }

// Loss says where events were lost. Every batch carries the counters of its producer run.
type Loss uint8

// Causes of loss.
const (
	LossControlRing Loss = iota // the ring of memory, process and name records was full
	LossBulkRing                // a ring of launches, copies and syncs was full
	LossState                   // the entry of a call could not be stored
	LossRead                    // an argument in the program's memory could not be read
	LossUnpaired                // a call was entered again before it returned, or returned without an entry
	LossTensorRing              // the ring of blocks of PyTorch's allocator was full
	LossSpool                   // spool or outbox overflowed, or an outbox record was corrupt
	LossOther                   // a cause that this reader does not know
	NumLosses
)

var lossWords = [NumLosses]string{
	LossControlRing: "control_ring", LossBulkRing: "bulk_ring", LossState: "state", LossRead: "read",
	LossUnpaired: "unpaired", LossTensorRing: "tensor_ring", LossSpool: "spool", LossOther: "other",
}

// String returns the word on the wire.
func (l Loss) String() string { return lossWords[min(l, LossOther)] }

func parseLoss(s string) Loss {
	if i := slices.Index(lossWords[:], s); i >= 0 {
		return Loss(i)
	}
	return LossOther
}

// Process is one image of one process. (PID, Start) identifies it on its host: Linux reuses PIDs.
type Process struct {
	PID       uint32
	Start     KTime // when the thread group leader was created
	UID       uint32
	Comm      string
	Exe       string // path as the process sees it; "" if the process ended before it could be read
	Container string // container id; "" outside containers
	Late      bool   // made calls before the probes were attached, or after they were detached
	User      string // name of UID on the host; "" if it has none
	NSPID     uint32 // PID as the process sees it; 0 if that is PID
	Cgroup    string // path of its control group
	Pod       string // UID of its Kubernetes pod; "" outside pods
	Unit      string // systemd unit; "" without one
	Job       string // job that the process belongs to, as its launcher names it; "" outside jobs
	Rank      uint32 // 0: unknown, else 1 + rank within the job
	Ranks     uint32 // number of ranks of the job; 0: unknown
}

// Thread is one thread of one of the batch's processes.
type Thread struct {
	Process uint32 // index into Batch.Processes
	TID     uint32
	Comm    string
}

// GPU is one device as one process sees it. UUID is "" while unknown.
type GPU struct {
	UUID     string // as nvidia-smi prints it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, MIG-… for a part of one
	Ordinal  uint32 // in the process's own numbering; in a heartbeat the device minor
	Inferred bool   // concluded from the process's open files and environment
	Name     string // heartbeat only: model
	Bus      string // heartbeat only: PCI address
	Bytes    uint64 // memory of the GPU; 0: unknown
}

// Context is one CUDA context of one process.
type Context struct {
	Handle uint64
	GPU    uint32 // 0 unknown, else 1 + index into Batch.GPUs
}

// CallRef is a row of a batch's call dictionary.
type CallRef struct {
	Symbol    string
	Op        Op
	Class     MemClass
	Direction Direction
}

// Func is a CUDA kernel or an executable graph. Name is mangled, as the compiler wrote it. It is "" for a graph, and if
// the handle was obtained unobserved.
type Func struct {
	Name   string
	Handle uint64
	Read   bool // the name was read from the program's memory, because its handle was obtained unobserved
}

// Graph lists the kernels that one launch of an executable graph runs.
type Graph struct {
	Func    uint32 // index into Batch.Funcs: the executable graph
	Partial bool   // it may run more: it was made before the probes were attached, or by calls without a probe
	Nodes   []Node // in a decoded batch: valid until the next Decode into it
}

// Node is how often one launch of an executable graph runs one kernel.
type Node struct {
	Func  uint32 // index into Batch.Funcs
	Count uint32
}

// LaunchShape holds the arguments that repeat from launch to launch.
type LaunchShape struct {
	Call        uint32 // index into Batch.Calls
	Func        uint32 // index into Batch.Funcs
	Grid        [3]uint32
	Block       [3]uint32
	SharedBytes uint32
}

// Stack is one call stack.
type Stack struct {
	Frames []string // functions, innermost first; " (module)" follows the function if it is known
	Name   string   // name of the variable that was allocated; "" if unknown
}

// Coverage lists, in a heartbeat, the calls of one process that gputap cannot observe.
type Coverage struct {
	Process      uint32   // index into Batch.Processes
	Asked        uint32   // driver functions that the program requested by name
	Outside      []string // those of them that work on memory or submit work and have no probe
	ExportTables uint32   // tables of unnamed functions that it requested
}

// End is how far the batches of one kind of a run are complete, in a heartbeat: batches with a larger Seq contain no
// record of a call that returned before Through.
type End struct {
	Kind    Kind
	Seq     uint64
	Through KTime
}

// Through returns the latest time of the ends; 0 without any.
func (b *Batch) Through() (at KTime) {
	for i := range b.Ends {
		at = max(at, b.Ends[i].Through)
	}
	return at
}

// Library is one attached library, in a heartbeat.
type Library struct {
	Path     string
	Inode    uint64
	Attached uint32   // symbols with a probe
	Stepped  uint32   // slow probes among them: Linux must single-step their instruction
	Absent   []string // symbols of the table that the library does not export
	Failed   []string // symbols whose probe could not be attached
}

// Header identifies a batch and carries its loss counters.
type Header struct {
	Minor       uint32 // minor version of the form; the subject carries the major version
	Kind        Kind
	Cluster     string
	Host        string
	BootID      string // new at each boot
	Run         uint64 // KTime at which the producer started: seq counts from 1 in each (boot, run, kind)
	Seq         uint64
	Events      int
	ClockOffset int64 // wall clock minus KTime, ns
	First       KTime // earliest entry time; 0 without events
	Last        KTime // latest entry time
	Lost        [NumLosses]uint64
}

// Wall converts a KTime of the batch's host to wall time.
func (h *Header) Wall(t KTime) time.Time { return time.Unix(0, int64(t)+h.ClockOffset).UTC() }

// ProcessID identifies one process of a fleet for ever.
type ProcessID struct {
	Cluster string
	Host    string
	BootID  string
	PID     uint32
	Start   KTime
}

// ID returns the identity of process p of the batch.
func (b *Batch) ID(p *Process) ProcessID {
	return ProcessID{Cluster: b.Cluster, Host: b.Host, BootID: b.BootID, PID: p.PID, Start: p.Start}
}

// Batch is one decoded message: a header, the dictionaries that its events refer to, and the columns. Columns borrow
// the message's bytes. The next Decode into the same Batch overwrites everything. Decode has checked every index.
type Batch struct {
	Header

	Processes   []Process
	Threads     []Thread
	GPUs        []GPU
	Calls       []CallRef
	Funcs       []Func
	Graphs      []Graph
	Contexts    []Context
	Shapes      []LaunchShape
	CUDAStreams []uint64
	Stacks      []Stack // memory only
	// Older lists the PIDs of live processes that started before this run of the producer and may have made calls.
	// A process has ended if it started before this run, made no call in it, and is not listed. nil: this batch
	// has no list.
	Older     []uint64
	Libraries []Library  // heartbeat only
	Coverage  []Coverage // heartbeat only
	Ends      []End      // heartbeat only: of every kind with events
	Linux     string     // heartbeat only: release of the host's Linux
	Producer  string     // heartbeat only: version of the producer
	Origin    string     // rank only: host on which the processes run; Host is the job

	columns [numColumns]Column
	nodes   []Node // of all Graphs
}

// Time returns the column of entry times.
func (b *Batch) Time() *Column { return &b.columns[colTime] }

// Duration returns the column of ns between entry and return.
func (b *Batch) Duration() *Column { return &b.columns[colDuration] }

// Thread returns the column of indices into Threads.
func (b *Batch) Thread() *Column { return &b.columns[colThread] }

// Call returns the column of indices into Calls. A launch finds its call in its shape.
func (b *Batch) Call() *Column { return &b.columns[colCall] }

// GPU returns the column of 1 + index into GPUs; 0 is unknown.
func (b *Batch) GPU() *Column { return &b.columns[colGPU] }

// Result returns the column of CUresults.
func (b *Batch) Result() *Column { return &b.columns[colResult] }

// Ptr returns the column of addresses and handles of a memory or sync batch: see Memory.Ptr, Sync.CUDAEvent.
func (b *Batch) Ptr() *Column { return &b.columns[colPtr] }

// Bytes returns the column of amounts.
func (b *Batch) Bytes() *Column { return &b.columns[colBytes] }

// HostMem returns the column of classes of host memory of a copy batch: see HostMem.
func (b *Batch) HostMem() *Column { return &b.columns[colHostMem] }

// Shape returns the column of indices into Shapes.
func (b *Batch) Shape() *Column { return &b.columns[colShape] }

// TotalLost returns the lost events of all causes.
func (h *Header) TotalLost() uint64 {
	var sum uint64
	for _, n := range h.Lost {
		sum += n
	}
	return sum
}
