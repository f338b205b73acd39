package schema

import (
	"slices"
	"strings"
)

// Op is the action of a call. It travels as a word in a batch's call dictionary, so that a reader understands a call
// whose symbol it does not know.
type Op uint8

// Operations. Only the producer sees those from OpName on: they never travel.
const (
	OpUnknown        Op = iota
	OpAlloc             // memory of Class appeared at Ptr, Bytes long
	OpFree              // the memory at Ptr was freed; a free of 0 is a no-op
	OpCreate            // physical memory of Bytes got the handle Ptr
	OpRetain            // the handle Ptr, which the program found by the address Aux, got one more reference
	OpRelease           // one reference to the handle Ptr was dropped
	OpReserve           // Bytes of addresses at Ptr were reserved, without memory
	OpUnreserve         // those addresses were returned
	OpMap               // Bytes at Ptr map the handle Aux
	OpUnmap             // every mapping inside [Ptr, Ptr+Bytes) was removed
	OpAccess            // the GPU may use the mappings inside [Ptr, Ptr+Bytes)
	OpMapArray          // Bytes mappings of a sparse array were made; the first maps resource Ptr to handle Aux
	OpBind              // Bytes of the memory Aux joined the multicast object Ptr
	OpUnbind            // Bytes of the multicast object Ptr left the GPU
	OpExport            // other processes may open Ptr by Aux: a file descriptor, or a hash of the token
	OpOpen              // Ptr holds memory that was made elsewhere, without bytes of its own; Aux as in export
	OpClose             // the holder Ptr was closed
	OpPrefetch          // Bytes of managed memory at Ptr move to the GPU, or to the host if the GPU is unknown
	OpPoolCreate        // the pool Ptr of at most Aux bytes was created (0: no limit); class ipc: Aux as in export
	OpPoolDestroy       // the pool Ptr was destroyed; its memory lives until it is freed
	OpPoolTrim          // the pool Ptr keeps at least Bytes
	OpPoolInfo          // attribute Aux (CUmemPool_attribute) of the pool Ptr is Bytes
	OpMemInfo           // Bytes of the GPU's Aux bytes are in use, by all processes
	OpContextCreate     // the context Ptr was created, from the green context Aux if not 0
	OpContextDestroy    // the context Ptr was destroyed, with its memory except class pool, vmm and graph
	OpContextRetain     // the primary context Ptr of the GPU has one more user
	OpContextRelease    // the primary context Ptr has one user less; without users it ends as if destroyed
	OpContextReset      // the primary context Ptr ended as if destroyed, regardless of its users
	OpModuleLoad        // the module or library Ptr was loaded
	OpModuleUnload      // the module or library Ptr was unloaded with its kernels
	OpExec              // the process replaced its image; it holds nothing in CUDA any more
	OpExit              // the last thread of the process ended
	OpLaunch            // a kernel was submitted
	OpGraphLaunch       // an executable graph was submitted
	OpGraphUpload       // an executable graph was prepared; it did not run
	OpHostFunc          // a host function was enqueued in a CUDA stream
	OpRecord            // a launch, copy, set or allocation was recorded into a graph: it did not run
	OpCopy              // a synchronous copy
	OpCopyAsync         // a copy was submitted
	OpSet               // memory was set
	OpSetAsync          // a set was submitted
	OpSync              // the thread waited for the GPU
	OpQuery             // the thread asked whether the GPU is done; result 600: not yet
	OpEventRecord       // the CUDA event was enqueued in the CUDA stream
	OpWaitEvent         // the CUDA stream waits for the CUDA event
	OpElapsed           // the program asked for the GPU time between two CUDA events
	OpStreamCreate      // a CUDA stream was created
	OpStreamDestroy     // a CUDA stream was destroyed
	OpName              // a handle got a kernel name
	OpAlias             // two handles name one kernel, or one module
	OpContext           // the thread's current context changed
	OpDevice            // a device ordinal got its UUID, name or bus address
	OpCapture           // a CUDA stream started or ended recording its calls into a graph
	OpGraph             // a graph got a node, was cloned or was destroyed
	OpExecutable        // an executable graph was made from a graph, or was destroyed
	OpCoverage          // the program requested an address of the driver
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

// String returns the word on the wire.
func (o Op) String() string { return word(opWords[:], int(o)) }

// kind returns the kind of the batches in which an op travels. OpRecord travels in all of them.
func (o Op) kind() Kind {
	switch {
	case o >= OpName:
		return KindNone
	case o >= OpSync:
		return KindSync
	case o >= OpCopy:
		return KindCopy
	case o >= OpLaunch:
		return KindLaunch
	}
	return KindMemory
}

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

func word(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return words[0]
}

// wordIndex is the inverse of word. An unknown word is 0.
func wordIndex(words []string, w string) int { return max(slices.Index(words, w), 0) }

// CallID is the row of a call in Calls. It is part of the attach cookie and never leaves the host.
type CallID uint16

// Call is one probed function of the driver library, or one of the two process events in memory batches.
type Call struct {
	Symbol     string
	Kind       Kind // batch kind; KindNone: only the producer uses the call
	Op         Op
	Shape      Shape
	Class      MemClass
	Direction  Direction
	CUDAStream uint8 // number of the argument that is the CUDA stream; 0: none, or inside a struct
	Unit       uint8 // bytes per element, if the amount counts elements
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
