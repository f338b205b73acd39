package schema

import "time"

// KTime is nanoseconds since the boot of one host (CLOCK_BOOTTIME). Two hosts' KTimes do not
// compare; Batch.Wall turns one into wall time.
type KTime uint64

// Kind names what a batch holds.
type Kind uint8

// Kinds of batches.
const (
	KindNone   Kind = iota
	KindMemory      // allocations, frees, mappings, process ends: all that leak state needs, in one order
	KindLaunch      // kernel and graph launches
	KindCopy        // copies and sets
	KindSync        // waits for the GPU, CUDA events and CUDA streams
	KindHost        // heartbeat of a host, no events
	NumKinds
)

var kindWords = [NumKinds]string{
	KindNone: "", KindMemory: "memory", KindLaunch: "launch", KindCopy: "copy", KindSync: "sync", KindHost: "host",
}

// String is the word on the wire and in subjects.
func (k Kind) String() string { return word(kindWords[:], int(k)) }

// ParseKind is the inverse of String; KindNone for an unknown word.
func ParseKind(s string) Kind { return Kind(wordIndex(kindWords[:], s)) }

// Loss says where events were lost. Counters are cumulative per producer run and travel in every batch.
type Loss uint8

// Causes of loss.
const (
	LossControlRing Loss = iota // the ring of memory, process and name records was full
	LossBulkRing                // a CPU's ring of launches and copies was full
	LossState                   // the entry of a call could not be remembered
	LossRead                    // an argument in the program's memory could not be read
	LossUnpaired                // a call was entered again before it returned, or returned without entry
	LossSpool                   // the bus was away and the spool overflowed: events in dropped batches
	LossOther                   // a cause this reader does not know
	NumLosses
)

var lossWords = [NumLosses]string{
	LossControlRing: "control_ring", LossBulkRing: "bulk_ring", LossState: "state", LossRead: "read",
	LossUnpaired: "unpaired", LossSpool: "spool", LossOther: "other",
}

// String is the word on the wire.
func (l Loss) String() string { return lossWords[min(l, LossOther)] }

func parseLoss(s string) Loss {
	for i, w := range lossWords {
		if w == s {
			return Loss(i)
		}
	}
	return LossOther
}

// Process is one image of one process. Its identity on a host is (PID, Start); a PID alone is reused.
type Process struct {
	PID       uint32
	Start     KTime // when the thread group leader was created
	UID       uint32
	Comm      string
	Exe       string // path as the process sees it; "" when it was gone before it could be read
	Container string // container id; "" outside containers
	Late      bool   // was running before the library was attached: earlier calls were not seen
	User      string // name of UID on the host; "" when it has none
	NSPID     uint32 // its PID as it sees itself; 0 when that is PID
	Cgroup    string // path of its control group
	Pod       string // UID of its Kubernetes pod; "" outside pods
	Unit      string // its systemd unit; "" without
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
	Inferred bool   // not told by the program but concluded from what it has open and was given
	Name     string // heartbeat only: model
	Bus      string // heartbeat only: PCI address
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

// Func is a kernel function or an executable graph. Name is mangled, as the compiler wrote it;
// "" when the handle was obtained unseen and nothing else told it.
type Func struct {
	Name   string
	Handle uint64
	Read   bool // the name was found in the program's memory: its handle was obtained unseen
}

// Graph says what one launch of an executable graph runs.
type Graph struct {
	Func    uint32 // index into Batch.Funcs: the executable graph
	Partial bool   // it may run more: it was made before gputap was attached, or in ways that are not seen
	Nodes   []Node // of a decoded batch: shared memory, valid until the next Decode into it
}

// Node is how often one launch of an executable graph runs one kernel.
type Node struct {
	Func  uint32 // index into Batch.Funcs
	Count uint32
}

// LaunchShape is what repeats from launch to launch.
type LaunchShape struct {
	Call        uint32 // index into Batch.Calls
	Func        uint32 // index into Batch.Funcs
	Grid        [3]uint32
	Block       [3]uint32
	SharedBytes uint32
}

// Coverage is what gputap cannot see of one process, in a host's heartbeat.
type Coverage struct {
	Process      uint32   // index into Batch.Processes
	Asked        uint32   // driver functions that the program asked for by name
	Outside      []string // of those, names that work on memory or submit work and have no probe
	ExportTables uint32   // tables of unnamed functions that it asked for
}

// Library is one attached driver library, in a host's heartbeat.
type Library struct {
	Path     string
	Inode    uint64
	Attached uint32   // symbols with a probe
	Stepped  uint32   // of those, probes on an instruction that Linux must single-step: slow
	Absent   []string // symbols of the table that the library does not export
	Failed   []string // symbols that could not be probed
}

// Header is what every batch says about itself.
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

// Wall turns a KTime of the batch's host into wall time.
func (h *Header) Wall(t KTime) time.Time { return time.Unix(0, int64(t)+h.ClockOffset).UTC() }

// ProcessID names one process of one fleet for ever: a PID alone is reused, a start time alone is not unique.
type ProcessID struct {
	Cluster string
	Host    string
	BootID  string
	PID     uint32
	Start   KTime
}

// ID is the identity of process p of the batch.
func (b *Batch) ID(p *Process) ProcessID {
	return ProcessID{Cluster: b.Cluster, Host: b.Host, BootID: b.BootID, PID: p.PID, Start: p.Start}
}
