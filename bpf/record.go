package bpf

import "unsafe"

// Record types; event.h says which ring each travels in.
const (
	RecordMemory uint16 = 1 + iota
	RecordThread
	RecordEnd
	RecordName
	RecordDevice
	RecordLaunch
	RecordCopy
	RecordSync
	RecordArray
	RecordGraph
	RecordCoverage
)

// The attach cookie: row of schema.Calls, schema.Shape, which argument is the CUDA stream, flags.
const (
	CookieShape     = 16
	CookieStream    = 24
	CookiePerThread = 1 << 28
	CookieQuiet     = 1 << 29
)

// Special values of MemoryRecord.Device.
const (
	DeviceOfContext = -1
	DeviceNone      = -2
)

// Head begins every record. Times are boot-time ns.
type Head struct {
	Type        uint16
	Call        uint16 // row of schema.Calls
	TID         uint32
	TGID        uint32
	Capture     uint32 // the call was recorded into a graph by this capture; 0: it ran
	ThreadStart uint64
	Time        uint64
	CUDAContext uint64 // 0 unknown
}

// MemoryRecord is one memory call.
type MemoryRecord struct {
	Head
	Duration uint64
	Ptr      uint64
	Bytes    uint64
	Aux      uint64
	Pool     uint64

	CUDAStream uint64
	Result     uint32
	Device     int32
}

// ArrayRecord is the making of an array; fields as in CUDA_ARRAY3D_DESCRIPTOR.
type ArrayRecord struct {
	Head
	Duration uint64
	Handle   uint64
	Width    uint64
	Height   uint64
	Depth    uint64
	Format   uint32
	Channels uint32
	Flags    uint32
	Levels   uint32 // 1 unless mipmapped
	Result   uint32
	_        uint32
}

// LaunchRecord is one launch; nothing is known of its result.
type LaunchRecord struct {
	Head
	Func        uint64
	CUDAStream  uint64
	Grid        [3]uint32
	Block       [3]uint32
	SharedBytes uint32
	_           uint32
}

// CopyRecord is one copy or set; Bytes of a set counts elements.
type CopyRecord struct {
	Head
	Duration   uint64
	Dst        uint64
	Src        uint64
	Bytes      uint64
	CUDAStream uint64
	Result     uint32
	SrcType    uint16 // CUmemorytype where the arguments say it; 0
	DstType    uint16
}

// SyncRecord is one wait, or one call of CUDA events.
type SyncRecord struct {
	Head
	Duration   uint64
	Handle     uint64 // CUDA event or context
	Until      uint64 // a second CUDA event
	CUDAStream uint64
	Result     uint32
	Elapsed    float32 // ms of GPU time
}

// ThreadRecord announces a thread, or tells the end of a process; then Call is schema.CallExec or
// schema.CallExit.
type ThreadRecord struct {
	Head
	ProcessStart uint64
	UID          uint32
	_            uint32
	Comm         [16]byte
	ProcessComm  [16]byte
}

// NameBytes is the room for a name; a longer one is cut.
const NameBytes = 2048

// NameRecord gives Handle a name, or says that Alias names the same kernel. Of schema.ShapeEnumerate Name
// is handles of Module, 8 bytes each.
type NameRecord struct {
	Head
	Handle    uint64
	Alias     uint64
	Module    uint64 // module or library it is of; 0 unknown
	NameBytes uint64
	Name      [NameBytes]byte
}

// DeviceRecord says what a device is: its ordinal, its UUID, or a text.
type DeviceRecord struct {
	Head
	Device  uint32
	Ordinal uint32 // of schema.ShapeDevice
	UUID    [16]byte
	Text    [64]byte
}

// GraphRecord is a capture's begin or end, a node of a graph, or what a graph was made into.
type GraphRecord struct {
	Head
	Made  uint64 // new graph or executable graph; of captures the CUDA stream
	Graph uint64
	Func  uint64
	Ptr   uint64
	Bytes uint64
}

// CoverageRecord is an address of the driver that a program asked for by name, or a table by its
// 16-byte id.
type CoverageRecord struct {
	Head
	Address uint64
	Name    [64]byte
}

// HeadOf is the head of a raw record, nil when raw is too short to have one. Like As it borrows raw.
func HeadOf(raw []byte) *Head { return As[Head](raw) }

// As views raw as a record of type T, nil when raw is shorter. The result borrows raw, which must be
// 8-byte aligned, as a ring reader's buffer is.
func As[T any](raw []byte) *T {
	var t T
	if len(raw) < int(unsafe.Sizeof(t)) {
		return nil
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(raw)))
}
