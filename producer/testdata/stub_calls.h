// stub_calls.h: every CUDA function that the stub exports, with its arguments in CUDA 13.0. To add a call, add a row
// here and a body.
#ifndef GPUTAP_STUB_CALLS_H
#define GPUTAP_STUB_CALLS_H

#include "stub_types.h"

#define STUB_PTSZ(X, name, params) X(name, params) X(name##_ptsz, params)
#define STUB_PTDS(X, name, params) X(name, params) X(name##_ptds, params)

#define STUB_COOPERATIVE                                                                                               \
	(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                   \
	 unsigned shared_bytes, CUstream stream, void **params)
#define STUB_LAUNCH                                                                                                    \
	(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                   \
	 unsigned shared_bytes, CUstream stream, void **params, void **extra)
#define STUB_NODE(last)                                                                                                \
	(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_n, last)

#define STUB_EACH_CALL(X)                                                                                              \
	X(cuInit, (unsigned flags))                                                                                    \
	X(cuDeviceGetCount, (int *count))                                                                              \
	X(cuDeviceGet, (CUdevice *device, int ordinal))                                                                \
	X(cuDeviceGetName, (char *name, int length, CUdevice device))                                                  \
	X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                                                       \
	X(cuDeviceGetUuid, (CUuuid *uuid, CUdevice device))                                                            \
	X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                                             \
	X(cuCtxSetCurrent, (CUcontext context))                                                                        \
	X(cuMemAlloc_v2, (CUdeviceptr *dptr, size_t bytes))                                                            \
	X(cuMemAllocManaged, (CUdeviceptr *dptr, size_t bytes, unsigned flags))                                        \
	X(cuMemAllocPitch_v2, (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element_bytes)) \
	STUB_PTSZ(X, cuMemAllocAsync, (CUdeviceptr *dptr, size_t bytes, CUstream stream))                              \
	X(cuMemFree_v2, (CUdeviceptr dptr))                                                                            \
	STUB_PTSZ(X, cuMemFreeAsync, (CUdeviceptr dptr, CUstream stream))                                              \
	X(cuMemHostAlloc, (void **pp, size_t bytes, unsigned flags))                                                   \
	X(cuMemFreeHost, (void *p))                                                                                    \
	X(cuMemGetInfo_v2, (size_t *available, size_t *total))                                                         \
	X(cuMemAddressReserve, (CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr hint, uint64_t flags))   \
	X(cuMemAddressFree, (CUdeviceptr ptr, size_t bytes))                                                           \
	X(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,           \
		uint64_t flags))                                                                                       \
	X(cuMemRelease, (CUmemGenericAllocationHandle handle))                                                         \
	X(cuMemMap, (CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,                \
		uint64_t flags))                                                                                       \
	X(cuMemUnmap, (CUdeviceptr ptr, size_t bytes))                                                                 \
	X(cuMemSetAccess, (CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t count))                  \
	STUB_PTSZ(X, cuLaunchKernel, STUB_LAUNCH)                                                                      \
	STUB_PTSZ(X, cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **params, void **extra))      \
	X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                          \
	STUB_PTDS(X, cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t bytes))                                \
	STUB_PTDS(X, cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t bytes))                                      \
	STUB_PTDS(X, cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes))                                \
	STUB_PTSZ(X, cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))          \
	STUB_PTSZ(X, cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))                \
	STUB_PTSZ(X, cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))          \
	X(cuCtxSynchronize, (void))                                                                                    \
	X(cuStreamSynchronize, (CUstream stream))                                                                      \
	X(cuLibraryLoadData, (CUlibrary *library, const void *code, void *jit_options, void **jit_values,              \
		unsigned jit_n, void *library_options, void **library_values, unsigned library_n))                     \
	X(cuLibraryGetKernel, (CUkernel *kernel, CUlibrary library, const char *name))                                 \
	X(cuModuleLoadData, (CUmodule *module, const void *image))                                                     \
	X(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))                              \
	X(cuKernelGetFunction, (CUfunction *function, CUkernel kernel))                                                \
	X(cuMemAllocHost_v2, (void **pp, size_t bytes))                                                                \
	STUB_PTSZ(X, cuMemAllocFromPoolAsync, (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream))   \
	X(cuMemHostRegister_v2, (void *p, size_t bytes, unsigned flags))                                               \
	X(cuMemHostUnregister, (void *p))                                                                              \
	X(cuArrayCreate_v2, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc))                                       \
	X(cuArray3DCreate_v2, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc))                                   \
	X(cuMipmappedArrayCreate, (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels))     \
	X(cuArrayDestroy, (CUarray array))                                                                             \
	X(cuMipmappedArrayDestroy, (CUmipmappedArray array))                                                           \
	X(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *props))                                          \
	X(cuMemPoolDestroy, (CUmemoryPool pool))                                                                       \
	X(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep))                                                           \
	X(cuMemPoolGetAttribute, (CUmemoryPool pool, int attribute, void *value))                                      \
	X(cuMemPoolExportPointer, (CUmemPoolPtrExportData *token, CUdeviceptr ptr))                                    \
	X(cuMemPoolImportPointer, (CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *token))                \
	X(cuMemPoolExportToShareableHandle, (void *out, CUmemoryPool pool, int type, uint64_t flags))                  \
	X(cuMemPoolImportFromShareableHandle, (CUmemoryPool *pool, void *shared, int type, uint64_t flags))            \
	X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *address))                          \
	X(cuMemExportToShareableHandle, (void *out, CUmemGenericAllocationHandle handle, int type, uint64_t flags))    \
	X(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *handle, void *shared, int type))              \
	STUB_PTSZ(X, cuMemMapArrayAsync, (CUarrayMapInfo *list, unsigned count, CUstream stream))                      \
	X(cuMulticastCreate, (CUmemGenericAllocationHandle *multicast, const CUmulticastObjectProp *prop))             \
	X(cuMulticastBindMem, (CUmemGenericAllocationHandle multicast, size_t offset,                                  \
		CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes, uint64_t flags))              \
	X(cuMulticastBindAddr, (CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address,            \
		size_t bytes, uint64_t flags))                                                                         \
	X(cuMulticastUnbind, (CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, size_t bytes))   \
	X(cuIpcGetMemHandle, (CUipcMemHandle *token, CUdeviceptr dptr))                                                \
	X(cuIpcOpenMemHandle, (CUdeviceptr *dptr, CUipcMemHandle token, unsigned flags))                               \
	X(cuIpcOpenMemHandle_v2, (CUdeviceptr *dptr, CUipcMemHandle token, unsigned flags))                            \
	X(cuIpcCloseMemHandle, (CUdeviceptr dptr))                                                                     \
	X(cuImportExternalMemory, (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc))            \
	X(cuExternalMemoryGetMappedBuffer, (CUdeviceptr *dptr, CUexternalMemory memory,                                \
		const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc))                                                         \
	X(cuExternalMemoryGetMappedMipmappedArray, (CUmipmappedArray *array, CUexternalMemory memory,                  \
		const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc))                                                \
	X(cuDestroyExternalMemory, (CUexternalMemory memory))                                                          \
	STUB_PTSZ(X, cuMemPrefetchAsync, (CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream))            \
	STUB_PTSZ(X, cuMemPrefetchAsync_v2, (CUdeviceptr ptr, size_t bytes, CUmemLocation location, unsigned flags,    \
		CUstream stream))                                                                                      \
	X(cuDevicePrimaryCtxRelease, (CUdevice device))                                                                \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                             \
	X(cuDevicePrimaryCtxReset, (CUdevice device))                                                                  \
	X(cuDevicePrimaryCtxReset_v2, (CUdevice device))                                                               \
	X(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device))                                       \
	X(cuCtxCreate_v3, (CUcontext *context, void *affinities, int affinities_n, unsigned flags, CUdevice device))   \
	X(cuCtxCreate_v4, (CUcontext *context, void *params, unsigned flags, CUdevice device))                         \
	X(cuCtxDestroy_v2, (CUcontext context))                                                                        \
	X(cuGreenCtxCreate, (CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device, unsigned flags))              \
	X(cuGreenCtxDestroy, (CUgreenCtx green))                                                                       \
	X(cuCtxFromGreenCtx, (CUcontext *context, CUgreenCtx green))                                                   \
	X(cuCtxPushCurrent_v2, (CUcontext context))                                                                    \
	X(cuCtxPopCurrent_v2, (CUcontext *context))                                                                    \
	X(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device))                                                         \
	X(cuDeviceGetPCIBusId, (char *bus, int length, CUdevice device))                                               \
	STUB_PTSZ(X, cuLaunchCooperativeKernel, STUB_COOPERATIVE)                                                      \
	X(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags))            \
	X(cuLaunch, (CUfunction f))                                                                                    \
	X(cuLaunchGrid, (CUfunction f, int width, int height))                                                         \
	X(cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream stream))                                   \
	STUB_PTSZ(X, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))                               \
	X(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream))                                                     \
	STUB_PTSZ(X, cuGraphUpload, (CUgraphExec exec, CUstream stream))                                               \
	X(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,                   \
		size_t log_bytes))                                                                                     \
	X(cuGraphInstantiate_v2, (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,                \
		size_t log_bytes))                                                                                     \
	X(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, uint64_t flags))                             \
	STUB_PTSZ(X, cuGraphInstantiateWithParams, (CUgraphExec *exec, CUgraph graph,                                  \
		CUDA_GRAPH_INSTANTIATE_PARAMS *params))                                                                \
	X(cuGraphExecDestroy, (CUgraphExec exec))                                                                      \
	X(cuGraphCreate, (CUgraph *graph, unsigned flags))                                                             \
	X(cuGraphAddKernelNode, STUB_NODE(const CUDA_KERNEL_NODE_PARAMS *params))                                      \
	X(cuGraphAddKernelNode_v2, STUB_NODE(const CUDA_KERNEL_NODE_PARAMS *params))                                   \
	X(cuGraphAddMemAllocNode, STUB_NODE(CUDA_MEM_ALLOC_NODE_PARAMS *params))                                       \
	X(cuGraphAddMemFreeNode, STUB_NODE(CUdeviceptr dptr))                                                          \
	X(cuGraphAddChildGraphNode, STUB_NODE(CUgraph child))                                                          \
	X(cuGraphAddNode, STUB_NODE(CUgraphNodeParams *params))                                                        \
	X(cuGraphAddNode_v2, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,           \
		size_t after_n, CUgraphNodeParams *params))                                                            \
	X(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, int *result))                  \
	X(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, void *result))                                       \
	X(cuGraphClone, (CUgraph *clone, CUgraph graph))                                                               \
	X(cuGraphDestroy, (CUgraph graph))                                                                             \
	STUB_PTSZ(X, cuStreamBeginCapture, (CUstream stream))                                                          \
	STUB_PTSZ(X, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                             \
	STUB_PTSZ(X, cuStreamBeginCaptureToGraph, (CUstream stream, CUgraph graph, const CUgraphNode *after,           \
		const void *edges, size_t after_n, int mode))                                                          \
	STUB_PTSZ(X, cuStreamEndCapture, (CUstream stream, CUgraph *graph))                                            \
	X(cuModuleLoad, (CUmodule *module, const char *file))                                                          \
	X(cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned options_n, void *options, void **values)) \
	X(cuModuleLoadFatBinary, (CUmodule *module, const void *image))                                                \
	X(cuLibraryLoadFromFile, (CUlibrary *library, const char *file, void *jit_options, void **jit_values,          \
		unsigned jit_n, void *library_options, void **library_values, unsigned library_n))                     \
	X(cuModuleUnload, (CUmodule module))                                                                           \
	X(cuLibraryUnload, (CUlibrary library))                                                                        \
	X(cuLibraryGetModule, (CUmodule *module, CUlibrary library))                                                   \
	X(cuModuleEnumerateFunctions, (CUfunction *functions, unsigned count, CUmodule module))                        \
	X(cuLibraryEnumerateKernels, (CUkernel *kernels, unsigned count, CUlibrary library))                           \
	X(cuKernelGetName, (const char **name, CUkernel kernel))                                                       \
	X(cuFuncGetName, (const char **name, CUfunction function))                                                     \
	STUB_PTDS(X, cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t bytes))                                       \
	STUB_PTSZ(X, cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                 \
	STUB_PTDS(X, cuMemcpyPeer, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,    \
		size_t bytes))                                                                                         \
	STUB_PTSZ(X, cuMemcpyPeerAsync, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,                      \
		CUcontext src_context, size_t bytes, CUstream stream))                                                 \
	STUB_PTDS(X, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy))                                                       \
	STUB_PTDS(X, cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy))                                              \
	STUB_PTSZ(X, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream))                                 \
	STUB_PTDS(X, cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy))                                                       \
	STUB_PTSZ(X, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream))                                 \
	STUB_PTDS(X, cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy))                                                 \
	STUB_PTSZ(X, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream))                           \
	STUB_PTDS(X, cuMemcpyDtoA_v2, (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes))                     \
	STUB_PTDS(X, cuMemcpyHtoA_v2, (CUarray dst, size_t offset, const void *src, size_t bytes))                     \
	STUB_PTDS(X, cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes))                     \
	STUB_PTDS(X, cuMemcpyAtoH_v2, (void *dst, CUarray src, size_t offset, size_t bytes))                           \
	STUB_PTDS(X, cuMemcpyAtoA_v2, (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes))  \
	STUB_PTSZ(X, cuMemcpyHtoAAsync_v2, (CUarray dst, size_t offset, const void *src, size_t bytes,                 \
		CUstream stream))                                                                                      \
	STUB_PTSZ(X, cuMemcpyAtoHAsync_v2, (void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream))     \
	STUB_PTSZ(X, cuMemcpyBatchAsync, (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,           \
		void *attributes, size_t *indices, size_t attributes_n, size_t *failed, CUstream stream))              \
	STUB_PTSZ(X, cuMemcpyBatchAsync_v2, (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,        \
		void *attributes, size_t *indices, size_t attributes_n, CUstream stream))                              \
	X(cuMemcpy3DBatchAsync_v2, (size_t count, void *list, uint64_t flags, CUstream stream))                        \
	STUB_PTDS(X, cuMemsetD8_v2, (CUdeviceptr dst, unsigned char value, size_t n))                                  \
	STUB_PTSZ(X, cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t n, CUstream stream))               \
	STUB_PTDS(X, cuMemsetD2D8_v2, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,               \
		size_t height))                                                                                        \
	STUB_PTSZ(X, cuMemsetD2D8Async, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,             \
		size_t height, CUstream stream))                                                                       \
	STUB_PTDS(X, cuMemsetD16_v2, (CUdeviceptr dst, unsigned short value, size_t n))                                \
	STUB_PTSZ(X, cuMemsetD16Async, (CUdeviceptr dst, unsigned short value, size_t n, CUstream stream))             \
	STUB_PTDS(X, cuMemsetD2D16_v2, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,             \
		size_t height))                                                                                        \
	STUB_PTSZ(X, cuMemsetD2D16Async, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,           \
		size_t height, CUstream stream))                                                                       \
	STUB_PTDS(X, cuMemsetD32_v2, (CUdeviceptr dst, unsigned value, size_t n))                                      \
	STUB_PTSZ(X, cuMemsetD32Async, (CUdeviceptr dst, unsigned value, size_t n, CUstream stream))                   \
	STUB_PTDS(X, cuMemsetD2D32_v2, (CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height))   \
	STUB_PTSZ(X, cuMemsetD2D32Async, (CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height,  \
		CUstream stream))                                                                                      \
	X(cuCtxSynchronize_v2, (CUcontext context))                                                                    \
	X(cuStreamSynchronize_ptsz, (CUstream stream))                                                                 \
	STUB_PTSZ(X, cuStreamQuery, (CUstream stream))                                                                 \
	X(cuEventCreate, (CUevent *event, unsigned flags))                                                             \
	X(cuEventDestroy_v2, (CUevent event))                                                                          \
	X(cuEventSynchronize, (CUevent event))                                                                         \
	X(cuEventQuery, (CUevent event))                                                                               \
	STUB_PTSZ(X, cuEventRecord, (CUevent event, CUstream stream))                                                  \
	STUB_PTSZ(X, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags))                         \
	STUB_PTSZ(X, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                              \
	X(cuEventElapsedTime, (float *ms, CUevent start, CUevent end))                                                 \
	X(cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end))                                              \
	X(cuStreamCreate, (CUstream *stream, unsigned flags))                                                          \
	X(cuStreamCreateWithPriority, (CUstream *stream, unsigned flags, int priority))                                \
	X(cuStreamDestroy_v2, (CUstream stream))                                                                       \
	X(cuGetProcAddress, (const char *symbol, void **address, int version, uint64_t flags))                         \
	X(cuGetProcAddress_v2, (const char *symbol, void **address, int version, uint64_t flags, int *status))         \
	X(cuGetExportTable, (const void **table, const CUuuid *id))

#define STUB_PROTOTYPE(name, params) CUresult name params;
STUB_EACH_CALL(STUB_PROTOTYPE)

#endif
