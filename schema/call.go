package schema

// Feature is one of the four things a user turns on; it is also the kind of the batches it fills.
type Feature = Kind

// Op says what a call did. It travels as a word in a batch's call dictionary, so a reader that
// does not know a symbol still knows what happened.
type Op uint8

// Operations on the wire, and three (name, device, context) that only the producer sees.
const (
	OpUnknown     Op = iota
	OpAlloc          // memory of Class appears at Ptr, Bytes long
	OpFree           // the memory at Ptr goes; Ptr 0 is not a free
	OpCreate         // physical memory appears under the handle Ptr, Bytes long
	OpRelease        // one reference to the handle Ptr goes
	OpMap            // Bytes at Ptr map the handle Aux
	OpUnmap          // every mapping inside [Ptr, Ptr+Bytes) goes
	OpExec           // the process replaced its image: everything it held in CUDA is gone
	OpExit           // the last thread of the process ended
	OpLaunch         // a kernel was submitted
	OpGraphLaunch    // an executable graph was submitted
	OpCopy           // a copy that returns when it is done
	OpCopyAsync      // a copy that was submitted
	OpSync           // the thread waited for the GPU
	OpName           // a handle got a kernel name
	OpAlias          // two handles name one kernel
	OpPrimary        // a context handle got a device ordinal
	OpContext        // the thread's current context changed
	OpUUID           // a device ordinal got its UUID
	NumOps
)

var opWords = [NumOps]string{
	OpUnknown: "unknown", OpAlloc: "alloc", OpFree: "free", OpCreate: "create", OpRelease: "release",
	OpMap: "map", OpUnmap: "unmap", OpExec: "exec", OpExit: "exit", OpLaunch: "launch",
	OpGraphLaunch: "graph_launch", OpCopy: "copy", OpCopyAsync: "copy_async", OpSync: "sync",
	OpName: "name", OpAlias: "alias", OpPrimary: "primary", OpContext: "context", OpUUID: "uuid",
}

// String is the word on the wire.
func (o Op) String() string { return word(opWords[:], int(o)) }

// MemClass is the kind of memory that a memory call deals in.
type MemClass uint8

// Memory classes. Device, managed, pool, array and VMM memory is GPU memory; pinned memory is the host's.
const (
	ClassNone MemClass = iota
	ClassDevice
	ClassManaged
	ClassPinned
	ClassPool
	ClassArray
	ClassVMM
	NumClasses
)

var classWords = [NumClasses]string{
	ClassNone: "", ClassDevice: "device", ClassManaged: "managed", ClassPinned: "pinned",
	ClassPool: "pool", ClassArray: "array", ClassVMM: "vmm",
}

// String is the word on the wire; "" for calls that have no memory class.
func (c MemClass) String() string { return word(classWords[:], int(c)) }

// OnGPU reports whether memory of this class is counted as GPU memory.
func (c MemClass) OnGPU() bool { return c != ClassNone && c != ClassPinned }

// Direction of a copy, spelled as NVIDIA's tools print it.
type Direction uint8

// Directions. Default is a copy whose direction the driver finds out from the addresses.
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

// String is the word on the wire; "" for calls that are no copy.
func (d Direction) String() string { return word(directionWords[:], int(d)) }

func word(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return words[0]
}

func wordIndex(words []string, w string) int {
	for i, known := range words {
		if known == w {
			return i
		}
	}
	return 0
}

// Shape is an argument family: calls of one shape share one BPF program pair. The name of the
// pair in bpf/ is the shape's name with _enter and _exit.
type Shape string

// Argument shapes; a1, a2, … are C arguments, a1* is what a1 points to when the call returns.
const (
	ShapeAlloc       Shape = "alloc"        // (a1* pointer, a2 bytes, a3 CUDA stream or flags)
	ShapeAllocPitch  Shape = "alloc_pitch"  // (a1* pointer, a2* pitch, a3 width, a4 height)
	ShapeFree        Shape = "free"         // (a1 pointer or handle, a2 CUDA stream)
	ShapeCreate      Shape = "create"       // (a1* handle, a2 bytes, a3 CUmemAllocationProp, a4 flags)
	ShapeMap         Shape = "map"          // (a1 pointer, a2 bytes, a3 offset, a4 handle)
	ShapeUnmap       Shape = "unmap"        // (a1 pointer, a2 bytes)
	ShapeLaunch      Shape = "launch"       // (a1 handle, a2–a4 grid, a5–a7 block, a8 shared bytes, a9 CUDA stream)
	ShapeLaunchEx    Shape = "launch_ex"    // (a1 CUlaunchConfig, a2 handle)
	ShapeGraphLaunch Shape = "graph_launch" // (a1 graph exec, a2 CUDA stream)
	ShapeCopy        Shape = "copy"         // (a1 destination, a2 source, a3 bytes, a4 CUDA stream when async)
	ShapeName        Shape = "name"         // (a1* handle, a2 module or library, a3 C string)
	ShapeAlias       Shape = "alias"        // (a1* function, a2 kernel)
	ShapePrimary     Shape = "primary"      // (a1* context, a2 ordinal)
	ShapeContext     Shape = "context"      // (a1 context)
	ShapeUUID        Shape = "uuid"         // (a1* 16 bytes, a2 ordinal)
)

// EntryOnly reports whether the shape has no return probe: a launch costs one trap, and its
// result is not seen.
func (s Shape) EntryOnly() bool {
	return s == ShapeLaunch || s == ShapeLaunchEx || s == ShapeGraphLaunch
}

// CallID numbers the rows of Calls. It is the attach cookie and never leaves the host.
type CallID uint16

// Call is one probed function of the driver library, or one of the two process events that
// travel among the memory calls.
type Call struct {
	Symbol     string
	Kind       Kind // batch kind; KindNone for what only the producer sees
	Op         Op
	Shape      Shape
	Class      MemClass
	Direction  Direction
	CUDAStream uint8 // which argument is the CUDA stream; 0: none
}

// The two process events. They are rows without a shape: nothing is attached for them.
const (
	CallExec CallID = 0
	CallExit CallID = 1
)

// Calls is the one table of probed symbols; a row's index is its CallID. Rows may be added at the
// end and never move. The 32-bit names without _v2 are absent: their sizes and pointers are 32
// bits wide, and no program built in this century calls them.
var Calls = []Call{
	CallExec: {Symbol: "process_exec", Kind: KindMemory, Op: OpExec},
	CallExit: {Symbol: "process_exit", Kind: KindMemory, Op: OpExit},

	{Symbol: "cuMemAlloc_v2", Kind: KindMemory, Op: OpAlloc, Shape: ShapeAlloc, Class: ClassDevice},
	{Symbol: "cuMemAllocManaged", Kind: KindMemory, Op: OpAlloc, Shape: ShapeAlloc, Class: ClassManaged},
	{Symbol: "cuMemAllocPitch_v2", Kind: KindMemory, Op: OpAlloc, Shape: ShapeAllocPitch, Class: ClassDevice},
	{Symbol: "cuMemAllocAsync", Kind: KindMemory, Op: OpAlloc, Shape: ShapeAlloc, Class: ClassPool, CUDAStream: 3},
	{Symbol: "cuMemAllocAsync_ptsz", Kind: KindMemory, Op: OpAlloc, Shape: ShapeAlloc, Class: ClassPool, CUDAStream: 3},
	{Symbol: "cuMemFree_v2", Kind: KindMemory, Op: OpFree, Shape: ShapeFree, Class: ClassDevice},
	{Symbol: "cuMemFreeAsync", Kind: KindMemory, Op: OpFree, Shape: ShapeFree, Class: ClassPool, CUDAStream: 2},
	{Symbol: "cuMemFreeAsync_ptsz", Kind: KindMemory, Op: OpFree, Shape: ShapeFree, Class: ClassPool, CUDAStream: 2},
	{Symbol: "cuMemHostAlloc", Kind: KindMemory, Op: OpAlloc, Shape: ShapeAlloc, Class: ClassPinned},
	{Symbol: "cuMemFreeHost", Kind: KindMemory, Op: OpFree, Shape: ShapeFree, Class: ClassPinned},
	{Symbol: "cuMemCreate", Kind: KindMemory, Op: OpCreate, Shape: ShapeCreate, Class: ClassVMM},
	{Symbol: "cuMemRelease", Kind: KindMemory, Op: OpRelease, Shape: ShapeFree, Class: ClassVMM},
	{Symbol: "cuMemMap", Kind: KindMemory, Op: OpMap, Shape: ShapeMap, Class: ClassVMM},
	{Symbol: "cuMemUnmap", Kind: KindMemory, Op: OpUnmap, Shape: ShapeUnmap, Class: ClassVMM},

	{Symbol: "cuLaunchKernel", Kind: KindLaunch, Op: OpLaunch, Shape: ShapeLaunch, CUDAStream: 9},
	{Symbol: "cuLaunchKernel_ptsz", Kind: KindLaunch, Op: OpLaunch, Shape: ShapeLaunch, CUDAStream: 9},
	{Symbol: "cuLaunchKernelEx", Kind: KindLaunch, Op: OpLaunch, Shape: ShapeLaunchEx},
	{Symbol: "cuLaunchKernelEx_ptsz", Kind: KindLaunch, Op: OpLaunch, Shape: ShapeLaunchEx},
	{Symbol: "cuGraphLaunch", Kind: KindLaunch, Op: OpGraphLaunch, Shape: ShapeGraphLaunch, CUDAStream: 2},

	{Symbol: "cuMemcpyHtoD_v2", Kind: KindCopy, Op: OpCopy, Shape: ShapeCopy, Direction: HtoD},
	{Symbol: "cuMemcpyHtoD_v2_ptds", Kind: KindCopy, Op: OpCopy, Shape: ShapeCopy, Direction: HtoD},
	{Symbol: "cuMemcpyDtoH_v2", Kind: KindCopy, Op: OpCopy, Shape: ShapeCopy, Direction: DtoH},
	{Symbol: "cuMemcpyDtoH_v2_ptds", Kind: KindCopy, Op: OpCopy, Shape: ShapeCopy, Direction: DtoH},
	{Symbol: "cuMemcpyDtoD_v2", Kind: KindCopy, Op: OpCopy, Shape: ShapeCopy, Direction: DtoD},
	{Symbol: "cuMemcpyDtoD_v2_ptds", Kind: KindCopy, Op: OpCopy, Shape: ShapeCopy, Direction: DtoD},
	{Symbol: "cuMemcpyHtoDAsync_v2", Kind: KindCopy, Op: OpCopyAsync, Shape: ShapeCopy, Direction: HtoD, CUDAStream: 4},
	{Symbol: "cuMemcpyHtoDAsync_v2_ptsz", Kind: KindCopy, Op: OpCopyAsync, Shape: ShapeCopy, Direction: HtoD, CUDAStream: 4},
	{Symbol: "cuMemcpyDtoHAsync_v2", Kind: KindCopy, Op: OpCopyAsync, Shape: ShapeCopy, Direction: DtoH, CUDAStream: 4},
	{Symbol: "cuMemcpyDtoHAsync_v2_ptsz", Kind: KindCopy, Op: OpCopyAsync, Shape: ShapeCopy, Direction: DtoH, CUDAStream: 4},
	{Symbol: "cuMemcpyDtoDAsync_v2", Kind: KindCopy, Op: OpCopyAsync, Shape: ShapeCopy, Direction: DtoD, CUDAStream: 4},
	{Symbol: "cuMemcpyDtoDAsync_v2_ptsz", Kind: KindCopy, Op: OpCopyAsync, Shape: ShapeCopy, Direction: DtoD, CUDAStream: 4},

	{Symbol: "cuLibraryGetKernel", Op: OpName, Shape: ShapeName},
	{Symbol: "cuModuleGetFunction", Op: OpName, Shape: ShapeName},
	{Symbol: "cuKernelGetFunction", Op: OpAlias, Shape: ShapeAlias},
	{Symbol: "cuDevicePrimaryCtxRetain", Op: OpPrimary, Shape: ShapePrimary},
	{Symbol: "cuCtxSetCurrent", Op: OpContext, Shape: ShapeContext},
	{Symbol: "cuDeviceGetUuid", Op: OpUUID, Shape: ShapeUUID},
}

// Needs reports whether a call is probed when the given kinds are wanted: names serve launches,
// devices and contexts serve every kind.
func (c *Call) Needs(wanted map[Kind]bool) bool {
	switch c.Op {
	case OpName, OpAlias:
		return wanted[KindLaunch]
	case OpPrimary, OpContext, OpUUID:
		return true
	}
	return c.Shape != "" && wanted[c.Kind]
}
