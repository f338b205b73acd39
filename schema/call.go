package schema

import (
	"slices"
	"strings"
)

// Shape is an argument family: it says how to read the arguments of a call. bpf/event.h uses the same numbers, and the
// attach cookie of a probe carries the number.
type Shape uint8

// Argument shapes; a1, a2, … are C arguments, and a1* is the value that a1 points to when the call returns.
const (
	ShapeNone           Shape = iota
	ShapeAlloc                // (a1* pointer, a2 bytes, a3 CUDA stream or flags)
	ShapeAllocPitch           // (a1* pointer, a2* pitch, a3 width, a4 height)
	ShapeAllocPool            // (a1* pointer, a2 bytes, a3 pool, a4 CUDA stream)
	ShapeArray                // (a1* handle, a2 CUDA_ARRAY_DESCRIPTOR)
	ShapeArray3D              // (a1* handle, a2 CUDA_ARRAY3D_DESCRIPTOR)
	ShapeMipmap               // (a1* handle, a2 CUDA_ARRAY3D_DESCRIPTOR, a3 levels)
	ShapeFree                 // (a1 pointer or handle, a2 CUDA stream)
	ShapeRange                // (a1 pointer or handle, a2 bytes)
	ShapeCreate               // (a1* handle, a2 bytes, a3 CUmemAllocationProp)
	ShapeMap                  // (a1 pointer, a2 bytes, a3 offset, a4 handle)
	ShapeAccess               // (a1 pointer, a2 bytes, a3 CUmemAccessDesc)
	ShapeMapArray             // (a1 CUarrayMapInfo, a2 count, a3 CUDA stream)
	ShapeHandle               // (a1* handle, a2 handle that it was made from)
	ShapeExport               // (a1* token or file descriptor, a2 handle, a3 type)
	ShapeImport               // (a1* handle, a2 token or file descriptor, a3 type)
	ShapeToken                // (a1* token, a2 pointer)
	ShapeOpen                 // (a1* pointer, token by value)
	ShapeOpenPointer          // (a1* pointer, a2 pool, a3* token)
	ShapeExternal             // (a1* handle, a2 CUDA_EXTERNAL_MEMORY_HANDLE_DESC)
	ShapeExternalBuffer       // (a1* pointer, a2 handle, a3 CUDA_EXTERNAL_MEMORY_BUFFER_DESC)
	ShapeMulticast            // (a1* handle, a2 CUmulticastObjectProp)
	ShapeBindMem              // (a1 multicast, a2 offset, a3 handle, a4 offset, a5 bytes)
	ShapeBindAddr             // (a1 multicast, a2 offset, a3 pointer, a4 bytes)
	ShapeUnbind               // (a1 multicast, a2 ordinal, a3 offset, a4 bytes)
	ShapePrefetch             // (a1 pointer, a2 bytes, a3 ordinal or -1, a4 CUDA stream)
	ShapePrefetchTo           // (a1 pointer, a2 bytes, a3 CUmemLocation, a4 flags, a5 CUDA stream)
	ShapePool                 // (a1* pool, a2 CUmemPoolProps)
	ShapePoolInfo             // (a1 pool, a2 attribute, a3* value)
	ShapeMemInfo              // (a1* free, a2* total)
	ShapeContext2             // (a1* context, a2 ordinal)
	ShapeContext3             // (a1* context, a2, a3 ordinal)
	ShapeContext4             // (a1* context, a2, a3, a4 ordinal)
	ShapeContext5             // (a1* context, a2, a3, a4, a5 ordinal)
	ShapeOrdinal              // (a1 ordinal)
	ShapeMade                 // (a1* handle)
	ShapeLaunch               // (a1 handle, a2–a4 grid, a5–a7 block, a8 shared bytes, a9 CUDA stream)
	ShapeLaunchEx             // (a1 CUlaunchConfig, a2 handle)
	ShapeLaunchMulti          // (a1 CUDA_LAUNCH_PARAMS, a2 count)
	ShapeLaunchOne            // (a1 handle)
	ShapeLaunchGrid           // (a1 handle, a2 grid x, a3 grid y, a4 CUDA stream)
	ShapeGraphLaunch          // (a1 executable graph, a2 CUDA stream)
	ShapeHostFunc             // (a1 CUDA stream, a2 function)
	ShapeCopy                 // (a1 destination, a2 source, a3 bytes, a4 CUDA stream)
	ShapeCopyPeer             // (a1 destination, a2 context, a3 source, a4 context, a5 bytes, a6 CUDA stream)
	ShapeCopy2D               // (a1 CUDA_MEMCPY2D, a2 CUDA stream)
	ShapeCopy3D               // (a1 CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER, a2 CUDA stream)
	ShapeCopyToArray          // (a1 array, a2 offset, a3 source, a4 bytes, a5 CUDA stream)
	ShapeCopyFromArray        // (a1 destination, a2 array, a3 offset, a4 bytes, a5 CUDA stream)
	ShapeCopyArrays           // (a1 array, a2 offset, a3 array, a4 offset, a5 bytes)
	ShapeCopyBatch            // (a1 destinations, a2 sources, a3 sizes, a4 count, …, CUDA stream)
	ShapeSet                  // (a1 destination, a2 value, a3 elements, a4 CUDA stream)
	ShapeSet2D                // (a1 destination, a2 pitch, a3 value, a4 width in elements, a5 height, a6 CUDA stream)
	ShapeSync                 // ()
	ShapeSyncHandle           // (a1 context or CUDA event)
	ShapeSyncStream           // (a1 CUDA stream)
	ShapeEventRecord          // (a1 CUDA event, a2 CUDA stream)
	ShapeWaitEvent            // (a1 CUDA stream, a2 CUDA event)
	ShapeElapsed              // (a1* float ms, a2 CUDA event, a3 CUDA event)
	ShapeName                 // (a1* handle, a2 module or library, a3 C string)
	ShapeNameOf               // (a1** C string, a2 handle)
	ShapeAlias                // (a1* handle, a2 another handle of the same object)
	ShapeSetContext           // (a1 context)
	ShapePushContext          // (a1 context)
	ShapePopContext           // ()
	ShapeUUID                 // (a1* 16 bytes, a2 ordinal)
	ShapeDeviceText           // (a1* C string, a2 room, a3 ordinal)
	ShapeCaptureBegin         // (a1 CUDA stream)
	ShapeCaptureInto          // (a1 CUDA stream, a2 graph)
	ShapeCaptureEnd           // (a1 CUDA stream, a2* graph)
	ShapeKernelNode           // (a1* node, a2 graph, a3 dependencies, a4 count, a5 CUDA_KERNEL_NODE_PARAMS)
	ShapeAllocNode            // (a1* node, a2 graph, a3 dependencies, a4 count, a5 CUDA_MEM_ALLOC_NODE_PARAMS)
	ShapeFreeNode             // (a1* node, a2 graph, a3 dependencies, a4 count, a5 pointer)
	ShapeChildNode            // (a1* node, a2 graph, a3 dependencies, a4 count, a5 graph)
	ShapeGraphPair            // (a1* graph or executable graph, a2 graph)
	ShapeGraphGone            // (a1 graph or executable graph)
	ShapeProcAddress          // (a1 C string, a2* address, a3 version, a4 flags)
	ShapeExportTable          // (a1* table, a2 16 bytes)
	ShapeGreenContext         // (a1* context, a2, a3 ordinal); the context does not become current
	ShapeGraphUpdate          // (a1 executable graph, a2 graph)
	ShapeAnyNode              // (a1* node, a2 graph, a3 dependencies, a4 count, a5 CUgraphNodeParams)
	ShapeAnyNode2             // (a1* node, a2 graph, a3 dependencies, a4 edges, a5 count, a6 CUgraphNodeParams)
	ShapeDevice               // (a1* device, a2 ordinal)
	ShapeEnumerate            // (a1 handles, a2 count, a3 module or library)
	ShapeDeviceBytes          // (a1* bytes, a2 ordinal)
	ShapeBlock                // (a1 pointer, a2 bytes or minus bytes, a3 allocated, a4 reserved, a5 c10::Device)
	NumShapes
)

// EntryOnly reports whether the shape has no return probe. A launch costs one trap, and its result is not observed. A
// block of PyTorch's allocator has no result.
func (s Shape) EntryOnly() bool { return s >= ShapeLaunch && s <= ShapeHostFunc || s == ShapeBlock }

// MemClass is the class of memory of a memory call.
type MemClass uint8

// Memory classes. Pinned and registered memory is host memory. Memory of class ipc, external and multicast is counted
// where it was made.
const (
	ClassNone MemClass = iota
	ClassDevice
	ClassManaged
	ClassPinned
	ClassPool
	ClassArray
	ClassVMM
	ClassGraph      // allocated by a graph's own nodes
	ClassRegistered // the program's own host memory, made accessible to GPUs
	ClassIPC        // opened from another process
	ClassExternal   // imported from another API
	ClassMulticast  // an object to which many GPUs bind memory
	NumClasses
)

var classWords = [NumClasses]string{
	ClassNone: "", ClassDevice: "device", ClassManaged: "managed", ClassPinned: "pinned", ClassPool: "pool",
	ClassArray: "array", ClassVMM: "vmm", ClassGraph: "graph", ClassRegistered: "registered", ClassIPC: "ipc",
	ClassExternal: "external", ClassMulticast: "multicast",
}

// String returns the word on the wire; "" for calls without a memory class.
func (c MemClass) String() string { return word(classWords[:], int(c)) }

// ParseMemClass is the inverse of String. An unknown word is ClassNone.
func ParseMemClass(s string) MemClass { return MemClass(wordIndex(classWords[:], s)) }

// OnGPU reports whether memory of this class is counted as GPU memory.
func (c MemClass) OnGPU() bool {
	switch c {
	case ClassDevice, ClassManaged, ClassPool, ClassArray, ClassVMM, ClassGraph:
		return true
	}
	return false
}

// OnHost reports whether memory of this class is counted as host memory held for GPUs.
func (c MemClass) OnHost() bool { return c == ClassPinned || c == ClassRegistered }

// Direction of a copy, spelled as NVIDIA's tools print it.
type Direction uint8

// Directions. DirDefault: the driver decides by the addresses.
const (
	DirNone Direction = iota
	HtoD
	DtoH
	DtoD
	HtoH
	PtoP
	DirDefault
	NumDirections
)

var directionWords = [NumDirections]string{
	DirNone: "", HtoD: "HtoD", DtoH: "DtoH", DtoD: "DtoD", HtoH: "HtoH", PtoP: "PtoP", DirDefault: "default",
}

// String returns the word on the wire; "" for calls that are not copies.
func (d Direction) String() string { return word(directionWords[:], int(d)) }

// ParseDirection is the inverse of String. An unknown word is DirNone.
func ParseDirection(s string) Direction { return Direction(wordIndex(directionWords[:], s)) }

func word(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return words[0]
}

// wordIndex is the inverse of word. An unknown word is 0.
func wordIndex(words []string, w string) int { return max(slices.Index(words, w), 0) }

// HostMem is the class of the host memory of a copy. A newer producer may write classes from NumHostMems on.
type HostMem uint32

// Host memory of a copy. The driver stages pageable memory through a buffer of its own.
const (
	HostMemUnknown  HostMem = iota // or no host memory
	HostMemPageable                // the program's ordinary memory
	HostMemPinned                  // allocated by the driver, registered, or managed
	NumHostMems
)

var hostMemWords = [NumHostMems]string{
	HostMemUnknown: "unknown", HostMemPageable: "pageable", HostMemPinned: "pinned",
}

// String returns the word in reports and metrics. A number that this reader does not know is unknown.
func (m HostMem) String() string { return word(hostMemWords[:], int(m)) }

// ParseHostMem is the inverse of String. An unknown word is HostMemUnknown.
func ParseHostMem(s string) HostMem { return HostMem(wordIndex(hostMemWords[:], s)) }

// CallID is the row of a call in Calls. It is part of the attach cookie and never leaves the host.
type CallID uint16

// Beginnings of the file names of the libraries that have probed functions.
const (
	DriverLibrary = "libcuda.so" // the CUDA driver
	TorchLibrary  = "libc10.so"  // PyTorch's allocator reports its blocks there
)

// Call is one probed function of a library, or one of the two process events in memory batches.
type Call struct {
	Symbol     string
	Kind       Kind // batch kind; KindNone: only the producer uses the call
	Op         Op
	Shape      Shape
	Class      MemClass
	Direction  Direction
	CUDAStream uint8  // number of the argument that is the CUDA stream; 0: none, or inside a struct
	Unit       uint8  // bytes per element, if the amount counts elements
	Library    string // DriverLibrary or TorchLibrary
}

// The two process events. Their rows have no shape: no probe is attached for them.
const (
	CallExec CallID = 0
	CallExit CallID = 1
)

// Ref returns the part of the call that travels.
func (c *Call) Ref() CallRef {
	return CallRef{Symbol: c.Symbol, Op: c.Op, Class: c.Class, Direction: c.Direction}
}

// PerThread reports whether CUDA stream 0 of the call is the default stream of the thread.
func (c *Call) PerThread() bool {
	return strings.HasSuffix(c.Symbol, "_ptsz") || strings.HasSuffix(c.Symbol, "_ptds")
}

// Needs reports whether a call is probed when the given kinds are wanted. Every kind needs devices, contexts, CUDA
// streams and coverage. Launches need names. Launches, copies and allocations need captures, because a call that was
// recorded into a graph did not run; and a CUDA event carries a capture from one CUDA stream to another.
func (c *Call) Needs(wanted map[Kind]bool) bool {
	captured := wanted[KindLaunch] || wanted[KindCopy] || wanted[KindMemory]
	switch c.Op {
	case OpContext, OpDevice, OpCoverage, OpContextCreate, OpContextDestroy, OpContextRetain, OpContextRelease,
		OpContextReset, OpStreamCreate, OpStreamDestroy:
		return true
	case OpName, OpAlias:
		return wanted[KindLaunch]
	case OpModuleLoad, OpModuleUnload, OpGraphLaunch:
		return wanted[KindLaunch] || wanted[KindMemory]
	case OpCapture, OpGraph, OpExecutable:
		return captured
	case OpEventRecord, OpWaitEvent:
		return captured || wanted[KindSync]
	}
	return c.Shape != ShapeNone && wanted[c.Kind]
}
