package bpf

import "unsafe"

// The record types are written by hand, and layout_test.go compares them with event.h. bpf2go -type is no replacement.
// It needs dummy variables in C before a record appears in BTF. Its types are one copy per architecture without an
// embedded Head, with int8 for characters and uint32 for the bits of a float.

// Record types. event.h names the ring of each.
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
	RecordTensor
)

// The attach cookie: row of schema.Calls, schema.Shape, number of the argument that is the CUDA stream, flags.
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

// Head is the start of every record. Times are boot-time ns.
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

// ArrayRecord is the creation of an array. Its fields are those of CUDA_ARRAY3D_DESCRIPTOR.
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

// LaunchRecord is one launch. Its result is not observed.
type LaunchRecord struct {
	Head
	Func        uint64
	CUDAStream  uint64
	Grid        [3]uint32
	Block       [3]uint32
	SharedBytes uint32
	_           uint32
}

// CopyRecord is one copy or set. Bytes of a set counts elements.
type CopyRecord struct {
	Head
	Duration   uint64
	Dst        uint64
	Src        uint64
	Bytes      uint64
	CUDAStream uint64
	Result     uint32
	SrcType    uint16 // CUmemorytype if an argument has it, else 0
	DstType    uint16
}

// SyncRecord is one wait, or one call on CUDA events or streams.
type SyncRecord struct {
	Head
	Duration   uint64
	Handle     uint64 // CUDA event or context
	Until      uint64 // a second CUDA event
	CUDAStream uint64
	Result     uint32
	Elapsed    float32 // ms of GPU time
}

// ThreadRecord announces a thread, or reports the end of a process or image: then Call is schema.CallExit or
// schema.CallExec.
type ThreadRecord struct {
	Head
	ProcessStart uint64
	UID          uint32
	_            uint32
	Comm         [16]byte
	ProcessComm  [16]byte
}

// NameBytes is the size of NameRecord.Name. Longer names are truncated.
const NameBytes = 2048

// NameRecord is the name of Handle, or an Alias of the same object. For schema.ShapeEnumerate, Name contains handles of
// Module, 8 bytes each.
type NameRecord struct {
	Head
	Handle    uint64
	Alias     uint64
	Module    uint64 // module or library of the handle; 0: unknown
	NameBytes uint64
	Name      [NameBytes]byte
}

// DeviceRecord is the ordinal, the UUID, a text, or the memory of a device.
type DeviceRecord struct {
	Head
	Device  uint32
	Ordinal uint32 // schema.ShapeDevice only
	UUID    [16]byte
	Text    [64]byte
	Bytes   uint64 // schema.ShapeDeviceBytes only
}

// GraphRecord is the start or end of a capture, a node of a graph, or a graph made from another.
type GraphRecord struct {
	Head
	Made  uint64 // new graph or executable graph; capture: the CUDA stream; any node: its type
	Graph uint64
	Func  uint64
	Ptr   uint64
	Bytes uint64
}

// CoverageRecord is an address of the driver that a program requested by name, or a table that it requested by a
// 16-byte id.
type CoverageRecord struct {
	Head
	Address uint64
	Name    [64]byte
}

// TensorRecord is one block that PyTorch's allocator handed out, or took back if Bytes is negative. Allocated and
// Reserved are the allocator's totals of the device after the call.
type TensorRecord struct {
	Head
	Ptr       uint64
	Bytes     int64
	Allocated uint64
	Reserved  uint64
	Device    int32 // ordinal
	_         uint32
}

// As returns raw as a record of type T, nil if raw is shorter. The result borrows raw, which must be 8-byte aligned, as
// records in a ring are.
func As[T any](raw []byte) *T {
	var t T
	if len(raw) < int(unsafe.Sizeof(t)) {
		return nil
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(raw)))
}
