package schema

import "strings"

// Feature is one of the four things a user turns on; it is also the kind of the batches it fills.
type Feature = Kind

// Op says what a call did. It travels as a word in a batch's call dictionary, so a reader that
// does not know a symbol still knows what happened.
type Op uint8

// Operations. Those from OpName on are seen by the producer alone and never travel.
const (
	OpUnknown        Op = iota
	OpAlloc             // memory of Class appears at Ptr, Bytes long
	OpFree              // the memory at Ptr goes; Ptr 0 is not a free
	OpCreate            // physical memory appears under the handle Ptr, Bytes long
	OpRetain            // the handle Ptr, found by the address Aux, has one reference more
	OpRelease           // one reference to the handle Ptr goes
	OpReserve           // addresses without memory: Bytes at Ptr
	OpUnreserve         // those addresses go
	OpMap               // Bytes at Ptr map the handle Aux
	OpUnmap             // every mapping inside [Ptr, Ptr+Bytes) goes
	OpAccess            // the GPU may use the mappings inside [Ptr, Ptr+Bytes)
	OpMapArray          // Bytes mappings of a sparse array, the first of resource Ptr to handle Aux
	OpBind              // Bytes of the memory Aux become part of the multicast object Ptr
	OpUnbind            // Bytes of the multicast object Ptr go from the GPU
	OpExport            // what Ptr names may be opened elsewhere by Aux: a file descriptor, or a number equal for equal tokens
	OpOpen              // Ptr now names memory that was made elsewhere: a holder, no bytes; Aux as in export
	OpClose             // the holder Ptr goes
	OpPrefetch          // Bytes of managed memory at Ptr move to the GPU, or to the host when that is unknown
	OpPoolCreate        // the pool Ptr, of at most Aux bytes (0: no limit); of class ipc Aux is as in export
	OpPoolDestroy       // the pool Ptr goes; what was allocated from it stays until it is freed
	OpPoolTrim          // the pool Ptr keeps at least Bytes
	OpPoolInfo          // the program asked the pool Ptr for attribute Aux (CUmemPool_attribute): Bytes
	OpMemInfo           // the program asked: Bytes of the GPU's Aux bytes are used, by all processes
	OpContextCreate     // the context Ptr appears; Aux: the green context it was made from
	OpContextDestroy    // the context Ptr goes, and its memory except of class pool, vmm and graph
	OpContextRetain     // the primary context Ptr of the GPU has one user more
	OpContextRelease    // the primary context Ptr has one user less; with the last one it ends as if destroyed
	OpContextReset      // the primary context Ptr ends as if destroyed, whatever its users
	OpModuleLoad        // code was loaded as the module or library Ptr
	OpModuleUnload      // the module or library Ptr goes with its kernels
	OpExec              // the process replaced its image: everything it held in CUDA is gone
	OpExit              // the last thread of the process ended
	OpLaunch            // a kernel was submitted
	OpGraphLaunch       // an executable graph was submitted
	OpGraphUpload       // an executable graph was made ready
	OpHostFunc          // a function of the host was put into a CUDA stream
	OpRecord            // a launch, copy, set or allocation was recorded into a graph: it did not run
	OpCopy              // a copy that returns when it is done
	OpCopyAsync         // a copy that was submitted
	OpSet               // memory was set
	OpSetAsync          // a set was submitted
	OpSync              // the thread waited for the GPU
	OpQuery             // the thread asked whether the GPU is done; result 600: not yet
	OpEventRecord       // the CUDA event was put into the CUDA stream
	OpWaitEvent         // the CUDA stream waits for the CUDA event
	OpElapsed           // the program asked for the GPU time between two CUDA events
	OpStreamCreate      // a CUDA stream appeared
	OpStreamDestroy     // a CUDA stream goes
	OpName              // a handle got a kernel name
	OpAlias             // two handles name one kernel, or one module
	OpContext           // the thread's current context changed
	OpDevice            // a device ordinal got its UUID, name or bus address
	OpCapture           // a CUDA stream began or ended recording its calls into a graph
	OpGraph             // a graph got a node, was cloned, or goes
	OpExecutable        // an executable graph was made of a graph, or goes
	OpCoverage          // the program asked for an address of the driver
	NumOps
)

var opWords = [NumOps]string{
	OpUnknown:        "unknown",
	OpAlloc:          "alloc",
	OpFree:           "free",
	OpCreate:         "create",
	OpRetain:         "retain",
	OpRelease:        "release",
	OpReserve:        "reserve",
	OpUnreserve:      "unreserve",
	OpMap:            "map",
	OpUnmap:          "unmap",
	OpAccess:         "access",
	OpMapArray:       "map_array",
	OpBind:           "bind",
	OpUnbind:         "unbind",
	OpExport:         "export",
	OpOpen:           "open",
	OpClose:          "close",
	OpPrefetch:       "prefetch",
	OpPoolCreate:     "pool_create",
	OpPoolDestroy:    "pool_destroy",
	OpPoolTrim:       "pool_trim",
	OpPoolInfo:       "pool_info",
	OpMemInfo:        "mem_info",
	OpContextCreate:  "context_create",
	OpContextDestroy: "context_destroy",
	OpContextRetain:  "context_retain",
	OpContextRelease: "context_release",
	OpContextReset:   "context_reset",
	OpModuleLoad:     "module_load",
	OpModuleUnload:   "module_unload",
	OpExec:           "exec",
	OpExit:           "exit",
	OpLaunch:         "launch",
	OpGraphLaunch:    "graph_launch",
	OpGraphUpload:    "graph_upload",
	OpHostFunc:       "host_func",
	OpRecord:         "record",
	OpCopy:           "copy",
	OpCopyAsync:      "copy_async",
	OpSet:            "set",
	OpSetAsync:       "set_async",
	OpSync:           "sync",
	OpQuery:          "query",
	OpEventRecord:    "event_record",
	OpWaitEvent:      "wait_event",
	OpElapsed:        "elapsed",
	OpStreamCreate:   "stream_create",
	OpStreamDestroy:  "stream_destroy",
	OpName:           "name",
	OpAlias:          "alias",
	OpContext:        "context",
	OpDevice:         "device",
	OpCapture:        "capture",
	OpGraph:          "graph",
	OpExecutable:     "executable",
	OpCoverage:       "coverage",
}

// String is the word on the wire.
func (o Op) String() string { return word(opWords[:], int(o)) }

// MemClass is the kind of memory that a memory call deals in.
type MemClass uint8

// Memory classes. Pinned and registered memory is the host's; ipc, external and multicast name memory
// that is counted where it was made.
const (
	ClassNone MemClass = iota
	ClassDevice
	ClassManaged
	ClassPinned
	ClassPool
	ClassArray
	ClassVMM
	ClassGraph      // allocated by a graph's own nodes
	ClassRegistered // host memory of the program's own, made accessible to GPUs
	ClassIPC        // opened from another process
	ClassExternal   // imported from another API
	ClassMulticast  // an object that many GPUs bind memory to
	NumClasses
)

var classWords = [NumClasses]string{
	ClassNone: "", ClassDevice: "device", ClassManaged: "managed", ClassPinned: "pinned", ClassPool: "pool",
	ClassArray: "array", ClassVMM: "vmm", ClassGraph: "graph", ClassRegistered: "registered", ClassIPC: "ipc",
	ClassExternal: "external", ClassMulticast: "multicast",
}

// String is the word on the wire; "" for calls that have no memory class.
func (c MemClass) String() string { return word(classWords[:], int(c)) }

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

// CallID numbers the rows of Calls. It is part of the attach cookie and never leaves the host.
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
	CUDAStream uint8 // which argument is the CUDA stream; 0: none, or inside a struct
	Unit       uint8 // bytes of an element, where the amount counts elements
}

// The two process events. They are rows without a shape: nothing is attached for them.
const (
	CallExec CallID = 0
	CallExit CallID = 1
)

// Ref is what travels of the call.
func (c *Call) Ref() CallRef {
	return CallRef{Symbol: c.Symbol, Op: c.Op, Class: c.Class, Direction: c.Direction}
}

// PerThread reports whether the call takes CUDA stream 0 for the thread's own default stream.
func (c *Call) PerThread() bool {
	return strings.HasSuffix(c.Symbol, "_ptsz") || strings.HasSuffix(c.Symbol, "_ptds")
}

// Needs reports whether a call is probed when the given kinds are wanted. Devices, contexts, CUDA
// streams and coverage serve every kind; names serve launches; whoever counts launches, copies or
// allocations must know which of them were only recorded into a graph, and a CUDA event carries a
// capture from one CUDA stream to another.
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
