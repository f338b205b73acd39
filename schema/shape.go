package schema

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
	NumShapes
)

var shapeWords = [NumShapes]string{
	ShapeNone:           "",
	ShapeAlloc:          "alloc",
	ShapeAllocPitch:     "alloc_pitch",
	ShapeAllocPool:      "alloc_pool",
	ShapeArray:          "array",
	ShapeArray3D:        "array_3d",
	ShapeMipmap:         "mipmap",
	ShapeFree:           "free",
	ShapeRange:          "range",
	ShapeCreate:         "create",
	ShapeMap:            "map",
	ShapeAccess:         "access",
	ShapeMapArray:       "map_array",
	ShapeHandle:         "handle",
	ShapeExport:         "export",
	ShapeImport:         "import",
	ShapeToken:          "token",
	ShapeOpen:           "open",
	ShapeOpenPointer:    "open_pointer",
	ShapeExternal:       "external",
	ShapeExternalBuffer: "external_buffer",
	ShapeMulticast:      "multicast",
	ShapeBindMem:        "bind_mem",
	ShapeBindAddr:       "bind_addr",
	ShapeUnbind:         "unbind",
	ShapePrefetch:       "prefetch",
	ShapePrefetchTo:     "prefetch_to",
	ShapePool:           "pool",
	ShapePoolInfo:       "pool_info",
	ShapeMemInfo:        "mem_info",
	ShapeContext2:       "context_2",
	ShapeContext3:       "context_3",
	ShapeContext4:       "context_4",
	ShapeContext5:       "context_5",
	ShapeOrdinal:        "ordinal",
	ShapeMade:           "made",
	ShapeLaunch:         "launch",
	ShapeLaunchEx:       "launch_ex",
	ShapeLaunchMulti:    "launch_multi",
	ShapeLaunchOne:      "launch_one",
	ShapeLaunchGrid:     "launch_grid",
	ShapeGraphLaunch:    "graph_launch",
	ShapeHostFunc:       "host_func",
	ShapeCopy:           "copy",
	ShapeCopyPeer:       "copy_peer",
	ShapeCopy2D:         "copy_2d",
	ShapeCopy3D:         "copy_3d",
	ShapeCopyToArray:    "copy_to_array",
	ShapeCopyFromArray:  "copy_from_array",
	ShapeCopyArrays:     "copy_arrays",
	ShapeCopyBatch:      "copy_batch",
	ShapeSet:            "set",
	ShapeSet2D:          "set_2d",
	ShapeSync:           "sync",
	ShapeSyncHandle:     "sync_handle",
	ShapeSyncStream:     "sync_stream",
	ShapeEventRecord:    "event_record",
	ShapeWaitEvent:      "wait_event",
	ShapeElapsed:        "elapsed",
	ShapeName:           "name",
	ShapeNameOf:         "name_of",
	ShapeAlias:          "alias",
	ShapeSetContext:     "set_context",
	ShapePushContext:    "push_context",
	ShapePopContext:     "pop_context",
	ShapeUUID:           "uuid",
	ShapeDeviceText:     "device_text",
	ShapeCaptureBegin:   "capture_begin",
	ShapeCaptureInto:    "capture_into",
	ShapeCaptureEnd:     "capture_end",
	ShapeKernelNode:     "kernel_node",
	ShapeAllocNode:      "alloc_node",
	ShapeFreeNode:       "free_node",
	ShapeChildNode:      "child_node",
	ShapeGraphPair:      "graph_pair",
	ShapeGraphGone:      "graph_gone",
	ShapeProcAddress:    "proc_address",
	ShapeGreenContext:   "green_context",
	ShapeExportTable:    "export_table",
	ShapeGraphUpdate:    "graph_update",
	ShapeAnyNode:        "any_node",
	ShapeAnyNode2:       "any_node_2",
	ShapeDevice:         "device",
	ShapeEnumerate:      "enumerate",
}

// String returns the shape's name. bpf/event.h writes it in upper case behind SHAPE_.
func (s Shape) String() string { return word(shapeWords[:], int(s)) }

// EntryOnly reports whether the shape has no return probe. A launch costs one trap, and its result is not observed.
func (s Shape) EntryOnly() bool {
	switch s {
	case ShapeLaunch, ShapeLaunchEx, ShapeLaunchMulti, ShapeLaunchOne, ShapeLaunchGrid, ShapeGraphLaunch, ShapeHostFunc:
		return true
	}
	return false
}
