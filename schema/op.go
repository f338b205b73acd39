package schema

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
	OpCopied            // a wait showed the end of a copy_async; Duration is its share of the time until then
	OpCopiedBehind      // the same, but kernels were queued in its CUDA stream before it
	OpSync              // the thread waited for the GPU
	OpQuery             // the thread asked whether the GPU is done; result 600: not yet
	OpEventRecord       // the CUDA event was enqueued in the CUDA stream
	OpWaitEvent         // the CUDA stream waits for the CUDA event
	OpElapsed           // the program asked for the GPU time between two CUDA events
	OpStreamCreate      // a CUDA stream was created
	OpStreamDestroy     // a CUDA stream was destroyed
	OpResume            // a thread launched again; Duration is the time since its last wait ended
	OpBlockAlloc        // PyTorch's caching allocator handed out the block at Ptr
	OpBlockFree         // PyTorch's caching allocator took back the block at Ptr
	OpName              // a handle got a kernel name
	OpAlias             // two handles name one kernel, or one module
	OpContext           // the thread's current context changed
	OpDevice            // a device ordinal got its UUID, name, bus address or memory
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
	OpCopied:         "copied",
	OpCopiedBehind:   "copied_behind",
	OpSync:           "sync",
	OpQuery:          "query",
	OpEventRecord:    "event_record",
	OpWaitEvent:      "wait_event",
	OpElapsed:        "elapsed",
	OpStreamCreate:   "stream_create",
	OpStreamDestroy:  "stream_destroy",
	OpResume:         "resume",
	OpBlockAlloc:     "block_alloc",
	OpBlockFree:      "block_free",
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

// ParseOp is the inverse of String. An unknown word is OpUnknown.
func ParseOp(s string) Op { return Op(wordIndex(opWords[:], s)) }

// kind returns the kind of the batches in which an op travels. OpRecord travels in all of them.
func (o Op) kind() Kind {
	switch {
	case o >= OpName:
		return KindNone
	case o >= OpBlockAlloc:
		return KindTensor
	case o >= OpSync:
		return KindSync
	case o >= OpCopy:
		return KindCopy
	case o >= OpLaunch:
		return KindLaunch
	}
	return KindMemory
}
