package schema

import (
	"cmp"
	"strings"
)

// Calls is the table of probed symbols. The index of a row is its CallID.
var Calls = allCalls()

// functions are rows of Calls that differ only in their symbols. name[_ptsz] stands for two symbols, name and
// name_ptsz: in the second, CUDA stream 0 is the default stream of the thread.
type functions struct {
	Symbols    string // separated by spaces
	Op         Op
	Shape      Shape
	Class      MemClass
	Direction  Direction
	CUDAStream uint8
	Unit       uint8
	Library    string // "" is DriverLibrary
}

func allCalls() (calls []Call) {
	for _, f := range probed {
		for symbol := range strings.FieldsSeq(f.Symbols) {
			symbol, suffix, perThread := strings.Cut(strings.TrimSuffix(symbol, "]"), "[")
			library := cmp.Or(f.Library, DriverLibrary)
			call := Call{symbol, f.Op.kind(), f.Op, f.Shape, f.Class, f.Direction, f.CUDAStream, f.Unit, library}
			calls = append(calls, call)
			if perThread {
				call.Symbol += suffix
				calls = append(calls, call)
			}
		}
	}
	return calls
}

// probed lists the functions in the order of Calls: they are only added at the end, and never move. It leaves out the
// first versions of functions that have a _v2: their sizes and pointers have 32 bits, and current programs do not call
// them. It also leaves out queries that programs make thousands of times a second (cuCtxGetCurrent, cuCtxGetDevice,
// cuDevicePrimaryCtxGetState): they change nothing.
var probed = []functions{
	{Symbols: "process_exec", Op: OpExec},
	{Symbols: "process_exit", Op: OpExit},

	{Symbols: "cuMemAlloc_v2", Op: OpAlloc, Shape: ShapeAlloc, Class: ClassDevice},
	{Symbols: "cuMemAllocManaged", Op: OpAlloc, Shape: ShapeAlloc, Class: ClassManaged},
	{Symbols: "cuMemAllocPitch_v2", Op: OpAlloc, Shape: ShapeAllocPitch, Class: ClassDevice},
	{Symbols: "cuMemAllocAsync[_ptsz]", Op: OpAlloc, Shape: ShapeAlloc, Class: ClassPool, CUDAStream: 3},
	{Symbols: "cuMemFree_v2", Op: OpFree, Shape: ShapeFree, Class: ClassDevice},
	{Symbols: "cuMemFreeAsync[_ptsz]", Op: OpFree, Shape: ShapeFree, Class: ClassPool, CUDAStream: 2},
	{Symbols: "cuMemHostAlloc", Op: OpAlloc, Shape: ShapeAlloc, Class: ClassPinned},
	{Symbols: "cuMemFreeHost", Op: OpFree, Shape: ShapeFree, Class: ClassPinned},
	{Symbols: "cuMemCreate", Op: OpCreate, Shape: ShapeCreate, Class: ClassVMM},
	{Symbols: "cuMemRelease", Op: OpRelease, Shape: ShapeFree, Class: ClassVMM},
	{Symbols: "cuMemMap", Op: OpMap, Shape: ShapeMap, Class: ClassVMM},
	{Symbols: "cuMemUnmap", Op: OpUnmap, Shape: ShapeRange, Class: ClassVMM},

	{Symbols: "cuLaunchKernel[_ptsz]", Op: OpLaunch, Shape: ShapeLaunch, CUDAStream: 9},
	{Symbols: "cuLaunchKernelEx[_ptsz]", Op: OpLaunch, Shape: ShapeLaunchEx},
	{Symbols: "cuGraphLaunch", Op: OpGraphLaunch, Shape: ShapeGraphLaunch, CUDAStream: 2},

	{Symbols: "cuMemcpyHtoD_v2[_ptds]", Op: OpCopy, Shape: ShapeCopy, Direction: HtoD},
	{Symbols: "cuMemcpyDtoH_v2[_ptds]", Op: OpCopy, Shape: ShapeCopy, Direction: DtoH},
	{Symbols: "cuMemcpyDtoD_v2[_ptds]", Op: OpCopy, Shape: ShapeCopy, Direction: DtoD},
	{Symbols: "cuMemcpyHtoDAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopy, Direction: HtoD, CUDAStream: 4},
	{Symbols: "cuMemcpyDtoHAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopy, Direction: DtoH, CUDAStream: 4},
	{Symbols: "cuMemcpyDtoDAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopy, Direction: DtoD, CUDAStream: 4},

	{Symbols: "cuLibraryGetKernel cuModuleGetFunction", Op: OpName, Shape: ShapeName},
	{Symbols: "cuKernelGetFunction", Op: OpAlias, Shape: ShapeAlias},
	{Symbols: "cuDevicePrimaryCtxRetain", Op: OpContextRetain, Shape: ShapeContext2},
	{Symbols: "cuCtxSetCurrent", Op: OpContext, Shape: ShapeSetContext},
	{Symbols: "cuDeviceGetUuid", Op: OpDevice, Shape: ShapeUUID},

	// Memory.
	{Symbols: "cuMemAllocHost_v2", Op: OpAlloc, Shape: ShapeAlloc, Class: ClassPinned},
	{Symbols: "cuMemAllocFromPoolAsync[_ptsz]", Op: OpAlloc, Shape: ShapeAllocPool, Class: ClassPool, CUDAStream: 4},
	{Symbols: "cuMemHostRegister_v2", Op: OpAlloc, Shape: ShapeRange, Class: ClassRegistered},
	{Symbols: "cuMemHostUnregister", Op: OpFree, Shape: ShapeFree, Class: ClassRegistered},
	{Symbols: "cuArrayCreate_v2", Op: OpAlloc, Shape: ShapeArray, Class: ClassArray},
	{Symbols: "cuArray3DCreate_v2", Op: OpAlloc, Shape: ShapeArray3D, Class: ClassArray},
	{Symbols: "cuMipmappedArrayCreate", Op: OpAlloc, Shape: ShapeMipmap, Class: ClassArray},
	{Symbols: "cuArrayDestroy cuMipmappedArrayDestroy", Op: OpFree, Shape: ShapeFree, Class: ClassArray},
	{Symbols: "cuMemPoolCreate", Op: OpPoolCreate, Shape: ShapePool, Class: ClassPool},
	{Symbols: "cuMemPoolDestroy", Op: OpPoolDestroy, Shape: ShapeFree, Class: ClassPool},
	{Symbols: "cuMemPoolTrimTo", Op: OpPoolTrim, Shape: ShapeRange, Class: ClassPool},
	{Symbols: "cuMemPoolGetAttribute", Op: OpPoolInfo, Shape: ShapePoolInfo, Class: ClassPool},
	{Symbols: "cuMemPoolExportPointer", Op: OpExport, Shape: ShapeToken, Class: ClassPool},
	{Symbols: "cuMemPoolImportPointer", Op: OpOpen, Shape: ShapeOpenPointer, Class: ClassIPC},
	{Symbols: "cuMemPoolExportToShareableHandle", Op: OpExport, Shape: ShapeExport, Class: ClassPool},
	{Symbols: "cuMemPoolImportFromShareableHandle", Op: OpPoolCreate, Shape: ShapeImport, Class: ClassIPC},
	{Symbols: "cuMemAddressReserve", Op: OpReserve, Shape: ShapeAlloc, Class: ClassVMM},
	{Symbols: "cuMemAddressFree", Op: OpUnreserve, Shape: ShapeRange, Class: ClassVMM},
	{Symbols: "cuMemSetAccess", Op: OpAccess, Shape: ShapeAccess, Class: ClassVMM},
	{Symbols: "cuMemRetainAllocationHandle", Op: OpRetain, Shape: ShapeHandle, Class: ClassVMM},
	{Symbols: "cuMemExportToShareableHandle", Op: OpExport, Shape: ShapeExport, Class: ClassVMM},
	{Symbols: "cuMemImportFromShareableHandle", Op: OpOpen, Shape: ShapeImport, Class: ClassVMM},
	{Symbols: "cuMemMapArrayAsync[_ptsz]", Op: OpMapArray, Shape: ShapeMapArray, Class: ClassVMM, CUDAStream: 3},
	{Symbols: "cuMulticastCreate", Op: OpCreate, Shape: ShapeMulticast, Class: ClassMulticast},
	{Symbols: "cuMulticastBindMem", Op: OpBind, Shape: ShapeBindMem, Class: ClassMulticast},
	{Symbols: "cuMulticastBindAddr", Op: OpBind, Shape: ShapeBindAddr, Class: ClassMulticast},
	{Symbols: "cuMulticastUnbind", Op: OpUnbind, Shape: ShapeUnbind, Class: ClassMulticast},
	{Symbols: "cuIpcGetMemHandle", Op: OpExport, Shape: ShapeToken, Class: ClassDevice},
	{Symbols: "cuIpcOpenMemHandle cuIpcOpenMemHandle_v2", Op: OpOpen, Shape: ShapeOpen, Class: ClassIPC},
	{Symbols: "cuIpcCloseMemHandle", Op: OpClose, Shape: ShapeFree, Class: ClassIPC},
	{Symbols: "cuImportExternalMemory", Op: OpOpen, Shape: ShapeExternal, Class: ClassExternal},
	{Symbols: "cuExternalMemoryGetMappedBuffer", Op: OpOpen, Shape: ShapeExternalBuffer, Class: ClassExternal},
	{Symbols: "cuExternalMemoryGetMappedMipmappedArray", Op: OpOpen, Shape: ShapeHandle, Class: ClassExternal},
	{Symbols: "cuDestroyExternalMemory", Op: OpClose, Shape: ShapeFree, Class: ClassExternal},
	{Symbols: "cuMemPrefetchAsync[_ptsz]", Op: OpPrefetch, Shape: ShapePrefetch, Class: ClassManaged, CUDAStream: 4},
	{
		Symbols: "cuMemPrefetchAsync_v2[_ptsz]", Op: OpPrefetch, Shape: ShapePrefetchTo, Class: ClassManaged,
		CUDAStream: 5,
	},
	{Symbols: "cuMemGetInfo_v2", Op: OpMemInfo, Shape: ShapeMemInfo},

	// Contexts and devices.
	{Symbols: "cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2", Op: OpContextRelease, Shape: ShapeOrdinal},
	{Symbols: "cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2", Op: OpContextReset, Shape: ShapeOrdinal},
	{Symbols: "cuCtxCreate_v2", Op: OpContextCreate, Shape: ShapeContext3},
	{Symbols: "cuCtxCreate_v3", Op: OpContextCreate, Shape: ShapeContext5},
	{Symbols: "cuCtxCreate_v4", Op: OpContextCreate, Shape: ShapeContext4},
	{Symbols: "cuCtxDestroy_v2", Op: OpContextDestroy, Shape: ShapeFree},
	{Symbols: "cuGreenCtxCreate", Op: OpContextCreate, Shape: ShapeGreenContext},
	{Symbols: "cuGreenCtxDestroy", Op: OpContextDestroy, Shape: ShapeFree},
	{Symbols: "cuCtxFromGreenCtx", Op: OpContextCreate, Shape: ShapeHandle},
	{Symbols: "cuCtxPushCurrent_v2", Op: OpContext, Shape: ShapePushContext},
	{Symbols: "cuCtxPopCurrent_v2", Op: OpContext, Shape: ShapePopContext},
	{Symbols: "cuDeviceGetUuid_v2", Op: OpDevice, Shape: ShapeUUID},
	{Symbols: "cuDeviceGetName cuDeviceGetPCIBusId", Op: OpDevice, Shape: ShapeDeviceText},

	// Launches, host functions and graphs.
	{Symbols: "cuLaunchCooperativeKernel[_ptsz]", Op: OpLaunch, Shape: ShapeLaunch, CUDAStream: 9},
	{Symbols: "cuLaunchCooperativeKernelMultiDevice", Op: OpLaunch, Shape: ShapeLaunchMulti},
	{Symbols: "cuLaunch", Op: OpLaunch, Shape: ShapeLaunchOne},
	{Symbols: "cuLaunchGrid", Op: OpLaunch, Shape: ShapeLaunchGrid},
	{Symbols: "cuLaunchGridAsync", Op: OpLaunch, Shape: ShapeLaunchGrid, CUDAStream: 4},
	{Symbols: "cuLaunchHostFunc[_ptsz]", Op: OpHostFunc, Shape: ShapeHostFunc, CUDAStream: 1},
	{Symbols: "cuGraphLaunch_ptsz", Op: OpGraphLaunch, Shape: ShapeGraphLaunch, CUDAStream: 2},
	{Symbols: "cuGraphUpload[_ptsz]", Op: OpGraphUpload, Shape: ShapeGraphLaunch, CUDAStream: 2},
	{Symbols: "cuGraphInstantiate cuGraphInstantiate_v2", Op: OpExecutable, Shape: ShapeGraphPair},
	{Symbols: "cuGraphInstantiateWithFlags", Op: OpExecutable, Shape: ShapeGraphPair},
	{Symbols: "cuGraphInstantiateWithParams[_ptsz]", Op: OpExecutable, Shape: ShapeGraphPair},
	{Symbols: "cuGraphExecDestroy", Op: OpExecutable, Shape: ShapeGraphGone},
	{Symbols: "cuGraphAddKernelNode cuGraphAddKernelNode_v2", Op: OpGraph, Shape: ShapeKernelNode},
	{Symbols: "cuGraphAddMemAllocNode", Op: OpGraph, Shape: ShapeAllocNode},
	{Symbols: "cuGraphAddMemFreeNode", Op: OpGraph, Shape: ShapeFreeNode},
	{Symbols: "cuGraphAddChildGraphNode", Op: OpGraph, Shape: ShapeChildNode},
	{Symbols: "cuGraphClone", Op: OpGraph, Shape: ShapeGraphPair},
	{Symbols: "cuGraphDestroy", Op: OpGraph, Shape: ShapeGraphGone},
	{Symbols: "cuStreamBeginCapture[_ptsz]", Op: OpCapture, Shape: ShapeCaptureBegin, CUDAStream: 1},
	{Symbols: "cuStreamBeginCapture_v2[_ptsz]", Op: OpCapture, Shape: ShapeCaptureBegin, CUDAStream: 1},
	{Symbols: "cuStreamBeginCaptureToGraph[_ptsz]", Op: OpCapture, Shape: ShapeCaptureInto, CUDAStream: 1},
	{Symbols: "cuStreamEndCapture[_ptsz]", Op: OpCapture, Shape: ShapeCaptureEnd, CUDAStream: 1},

	// Modules, libraries and names.
	{Symbols: "cuModuleLoad cuModuleLoadData cuModuleLoadDataEx", Op: OpModuleLoad, Shape: ShapeMade},
	{Symbols: "cuModuleLoadFatBinary cuLibraryLoadData cuLibraryLoadFromFile", Op: OpModuleLoad, Shape: ShapeMade},
	{Symbols: "cuModuleUnload cuLibraryUnload", Op: OpModuleUnload, Shape: ShapeFree},
	{Symbols: "cuLibraryGetModule", Op: OpAlias, Shape: ShapeAlias},
	{Symbols: "cuKernelGetName cuFuncGetName", Op: OpName, Shape: ShapeNameOf},

	// Copies and sets.
	{Symbols: "cuMemcpy[_ptds]", Op: OpCopy, Shape: ShapeCopy, Direction: DirDefault},
	{Symbols: "cuMemcpyAsync[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopy, Direction: DirDefault, CUDAStream: 4},
	{Symbols: "cuMemcpyPeer[_ptds]", Op: OpCopy, Shape: ShapeCopyPeer, Direction: PtoP},
	{Symbols: "cuMemcpyPeerAsync[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopyPeer, Direction: PtoP, CUDAStream: 6},
	{Symbols: "cuMemcpy2D_v2[_ptds]", Op: OpCopy, Shape: ShapeCopy2D, Direction: DirDefault},
	{Symbols: "cuMemcpy2DUnaligned_v2[_ptds]", Op: OpCopy, Shape: ShapeCopy2D, Direction: DirDefault},
	{Symbols: "cuMemcpy2DAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopy2D, Direction: DirDefault, CUDAStream: 2},
	{Symbols: "cuMemcpy3D_v2[_ptds]", Op: OpCopy, Shape: ShapeCopy3D, Direction: DirDefault},
	{Symbols: "cuMemcpy3DAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopy3D, Direction: DirDefault, CUDAStream: 2},
	{Symbols: "cuMemcpy3DPeer[_ptds]", Op: OpCopy, Shape: ShapeCopy3D, Direction: PtoP},
	{Symbols: "cuMemcpy3DPeerAsync[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopy3D, Direction: PtoP, CUDAStream: 2},
	{Symbols: "cuMemcpyDtoA_v2[_ptds]", Op: OpCopy, Shape: ShapeCopyToArray, Direction: DtoD},
	{Symbols: "cuMemcpyHtoA_v2[_ptds]", Op: OpCopy, Shape: ShapeCopyToArray, Direction: HtoD},
	{Symbols: "cuMemcpyAtoD_v2[_ptds]", Op: OpCopy, Shape: ShapeCopyFromArray, Direction: DtoD},
	{Symbols: "cuMemcpyAtoH_v2[_ptds]", Op: OpCopy, Shape: ShapeCopyFromArray, Direction: DtoH},
	{Symbols: "cuMemcpyAtoA_v2[_ptds]", Op: OpCopy, Shape: ShapeCopyArrays, Direction: DtoD},
	{Symbols: "cuMemcpyHtoAAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopyToArray, Direction: HtoD, CUDAStream: 5},
	{
		Symbols: "cuMemcpyAtoHAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopyFromArray, Direction: DtoH,
		CUDAStream: 5,
	},
	{
		Symbols: "cuMemcpyBatchAsync[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopyBatch, Direction: DirDefault,
		CUDAStream: 9,
	},
	{
		Symbols: "cuMemcpyBatchAsync_v2[_ptsz]", Op: OpCopyAsync, Shape: ShapeCopyBatch, Direction: DirDefault,
		CUDAStream: 8,
	},
	{Symbols: "cuMemsetD8_v2[_ptds]", Op: OpSet, Shape: ShapeSet, Unit: 1},
	{Symbols: "cuMemsetD8Async[_ptsz]", Op: OpSetAsync, Shape: ShapeSet, CUDAStream: 4, Unit: 1},
	{Symbols: "cuMemsetD2D8_v2[_ptds]", Op: OpSet, Shape: ShapeSet2D, Unit: 1},
	{Symbols: "cuMemsetD2D8Async[_ptsz]", Op: OpSetAsync, Shape: ShapeSet2D, CUDAStream: 6, Unit: 1},
	{Symbols: "cuMemsetD16_v2[_ptds]", Op: OpSet, Shape: ShapeSet, Unit: 2},
	{Symbols: "cuMemsetD16Async[_ptsz]", Op: OpSetAsync, Shape: ShapeSet, CUDAStream: 4, Unit: 2},
	{Symbols: "cuMemsetD2D16_v2[_ptds]", Op: OpSet, Shape: ShapeSet2D, Unit: 2},
	{Symbols: "cuMemsetD2D16Async[_ptsz]", Op: OpSetAsync, Shape: ShapeSet2D, CUDAStream: 6, Unit: 2},
	{Symbols: "cuMemsetD32_v2[_ptds]", Op: OpSet, Shape: ShapeSet, Unit: 4},
	{Symbols: "cuMemsetD32Async[_ptsz]", Op: OpSetAsync, Shape: ShapeSet, CUDAStream: 4, Unit: 4},
	{Symbols: "cuMemsetD2D32_v2[_ptds]", Op: OpSet, Shape: ShapeSet2D, Unit: 4},
	{Symbols: "cuMemsetD2D32Async[_ptsz]", Op: OpSetAsync, Shape: ShapeSet2D, CUDAStream: 6, Unit: 4},

	// Waits, CUDA events and CUDA streams.
	{Symbols: "cuCtxSynchronize", Op: OpSync, Shape: ShapeSync},
	{Symbols: "cuCtxSynchronize_v2", Op: OpSync, Shape: ShapeSyncHandle},
	{Symbols: "cuStreamSynchronize[_ptsz]", Op: OpSync, Shape: ShapeSyncStream, CUDAStream: 1},
	{Symbols: "cuStreamQuery[_ptsz]", Op: OpQuery, Shape: ShapeSyncStream, CUDAStream: 1},
	{Symbols: "cuEventSynchronize", Op: OpSync, Shape: ShapeSyncHandle},
	{Symbols: "cuEventQuery", Op: OpQuery, Shape: ShapeSyncHandle},
	{Symbols: "cuEventRecord[_ptsz]", Op: OpEventRecord, Shape: ShapeEventRecord, CUDAStream: 2},
	{Symbols: "cuEventRecordWithFlags[_ptsz]", Op: OpEventRecord, Shape: ShapeEventRecord, CUDAStream: 2},
	{Symbols: "cuStreamWaitEvent[_ptsz]", Op: OpWaitEvent, Shape: ShapeWaitEvent, CUDAStream: 1},
	{Symbols: "cuEventElapsedTime cuEventElapsedTime_v2", Op: OpElapsed, Shape: ShapeElapsed},
	{Symbols: "cuStreamCreate cuStreamCreateWithPriority", Op: OpStreamCreate, Shape: ShapeMade},
	{Symbols: "cuStreamDestroy_v2", Op: OpStreamDestroy, Shape: ShapeSyncStream, CUDAStream: 1},

	// Addresses and tables that a program requests from the driver.
	{Symbols: "cuGetProcAddress cuGetProcAddress_v2", Op: OpCoverage, Shape: ShapeProcAddress},
	{Symbols: "cuGetExportTable", Op: OpCoverage, Shape: ShapeExportTable},

	{Symbols: "cuGraphExecUpdate cuGraphExecUpdate_v2", Op: OpExecutable, Shape: ShapeGraphUpdate},
	{Symbols: "cuGraphAddNode", Op: OpGraph, Shape: ShapeAnyNode},
	{Symbols: "cuGraphAddNode_v2", Op: OpGraph, Shape: ShapeAnyNode2},
	{Symbols: "cuDeviceGet", Op: OpDevice, Shape: ShapeDevice},
	{Symbols: "cuModuleEnumerateFunctions cuLibraryEnumerateKernels", Op: OpName, Shape: ShapeEnumerate},
	{Symbols: "cuDeviceTotalMem_v2", Op: OpDevice, Shape: ShapeDeviceBytes},

	// c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device). A negative size is OpBlockFree.
	{
		Symbols: "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", Op: OpBlockAlloc, Shape: ShapeBlock,
		Library: TorchLibrary,
	},
}
