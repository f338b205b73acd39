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
)

// Special values of MemoryRecord.Device.
const (
	DeviceOfContext = -1
	DeviceHost      = -2
)

// Head begins every record. Times are boot-time ns.
type Head struct {
	Type        uint16
	Call        uint16 // row of schema.Calls
	TID         uint32
	TGID        uint32
	_           uint32
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
	Result   uint32
	Device   int32
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

// CopyRecord is one copy.
type CopyRecord struct {
	Head
	Duration   uint64
	Dst        uint64
	Src        uint64
	Bytes      uint64
	CUDAStream uint64 // a4: meaningless for calls without a stream argument
	Result     uint32
	_          uint32
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

// NameRecord gives Handle a name, or says that Alias names the same kernel.
type NameRecord struct {
	Head
	Handle    uint64
	Alias     uint64
	NameBytes uint64
	Name      [NameBytes]byte
}

// DeviceRecord gives a context its ordinal, or an ordinal its UUID.
type DeviceRecord struct {
	Head
	CUDAContextMade uint64
	Device          uint32
	_               uint32
	UUID            [16]byte
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
