// stub_types.h: the handles and structs of the CUDA driver interface, laid out as CUDA 13.0 lays them out on 64 bits.
#ifndef GPUTAP_STUB_TYPES_H
#define GPUTAP_STUB_TYPES_H

#include <stddef.h>
#include <stdint.h>

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
};

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUlib_st *CUlibrary;
typedef struct CUmod_st *CUmodule;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUextMemory_st *CUexternalMemory;
typedef void (*CUhostFn)(void *data);

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

typedef struct {
	unsigned char bytes[16];
} CUuuid;

enum { CU_LOCATION_DEVICE = 1, CU_LOCATION_HOST = 2 };

typedef struct {
	int type;
	int id; // ordinal
} CUmemLocation;

enum { CU_HANDLE_FD = 1, CU_HANDLE_FABRIC = 8 };

typedef struct {
	int type; // 1 = pinned
	int requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
	CUmemLocation location;
	int flags; // 3 = read and write
} CUmemAccessDesc;

typedef struct {
	int allocType;
	int handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;

enum {
	CU_POOL_RELEASE_THRESHOLD = 4,
	CU_POOL_RESERVED_CURRENT = 5,
	CU_POOL_RESERVED_HIGH = 6,
	CU_POOL_USED_CURRENT = 7,
	CU_POOL_USED_HIGH = 8,
};

// A token lets another process open memory. Each of its forms has 64 bytes.
typedef struct {
	uint64_t words[8];
} CUtoken;
typedef CUtoken CUipcMemHandle;
typedef CUtoken CUmemPoolPtrExportData;

enum { CU_ARRAY_LAYERED = 0x01, CU_ARRAY_SPARSE = 0x40, CU_ARRAY_DEFERRED = 0x80 };

typedef struct {
	size_t Width, Height;
	int Format;
	unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
	size_t Width, Height, Depth;
	int Format;
	unsigned NumChannels;
	unsigned Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
	int resourceType; // 0 = array, 1 = mipmapped array
	void *resource;
	int subresourceType;
	unsigned long long subresource[4];
	int memOperationType; // 1 = map, 2 = unmap
	int memHandleType;
	CUmemGenericAllocationHandle memHandle;
	unsigned long long offset;
	unsigned deviceBitMask;
	unsigned flags;
	unsigned reserved[2];
} CUarrayMapInfo;

typedef struct {
	unsigned numDevices;
	size_t size;
	unsigned long long handleTypes;
	unsigned long long flags;
} CUmulticastObjectProp;

typedef struct {
	int type; // 1 = file descriptor
	union {
		int fd;
		void *pair[2];
	} handle;
	unsigned long long size;
	unsigned flags;
	unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct {
	unsigned long long offset, size;
	unsigned flags;
	unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

typedef struct {
	unsigned long long offset;
	CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
	unsigned numLevels;
	unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;

typedef struct {
	unsigned gridDimX, gridDimY, gridDimZ;
	unsigned blockDimX, blockDimY, blockDimZ;
	unsigned sharedMemBytes;
	CUstream hStream;
	void *attrs;
	unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
	CUfunction function;
	unsigned gridDimX, gridDimY, gridDimZ;
	unsigned blockDimX, blockDimY, blockDimZ;
	unsigned sharedMemBytes;
	CUstream hStream;
	void **kernelParams;
} CUDA_LAUNCH_PARAMS;

// The first version of the parameters of a kernel node ends before kern.
typedef struct {
	CUfunction func;
	unsigned gridDimX, gridDimY, gridDimZ;
	unsigned blockDimX, blockDimY, blockDimZ;
	unsigned sharedMemBytes;
	void **kernelParams;
	void **extra;
	CUkernel kern;
	CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
	CUmemPoolProps poolProps;
	const CUmemAccessDesc *accessDescs;
	size_t accessDescCount;
	size_t bytesize;
	CUdeviceptr dptr; // set by the driver
} CUDA_MEM_ALLOC_NODE_PARAMS;

enum { CU_NODE_KERNEL = 0, CU_NODE_CHILD = 4, CU_NODE_EMPTY = 5, CU_NODE_ALLOC = 10, CU_NODE_FREE = 11 };

typedef struct {
	int type;
	int reserved0[3];
	union {
		long long reserved1[29];
		CUDA_KERNEL_NODE_PARAMS kernel;
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		CUdeviceptr freed;
		CUgraph child;
	};
	long long reserved2;
} CUgraphNodeParams;

typedef struct {
	uint64_t flags;
	CUstream hUploadStream;
	CUgraphNode hErrNode_out;
	int result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2, CU_MEMORY_ARRAY = 3, CU_MEMORY_UNIFIED = 4 };

typedef struct {
	size_t srcXInBytes, srcY;
	int srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	size_t srcPitch;
	size_t dstXInBytes, dstY;
	int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	size_t dstPitch;
	size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

// A copy between contexts has the same struct, with contexts in the fields that are reserved otherwise.
typedef struct {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	int srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	CUcontext srcContext;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	CUcontext dstContext;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;
typedef CUDA_MEMCPY3D CUDA_MEMCPY3D_PEER;

#define STUB_AT(type, field, at) _Static_assert(offsetof(type, field) == (at), "as in cuda.h of CUDA 13.0")
#define STUB_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "as in cuda.h of CUDA 13.0")
STUB_SIZE(CUmemAllocationProp, 32);
STUB_SIZE(CUmemAccessDesc, 12);
STUB_AT(CUmemPoolProps, maxSize, 24);
STUB_SIZE(CUmemPoolProps, 88);
STUB_SIZE(CUtoken, 64);
STUB_SIZE(CUDA_ARRAY_DESCRIPTOR, 24);
STUB_AT(CUDA_ARRAY3D_DESCRIPTOR, Flags, 32);
STUB_SIZE(CUDA_ARRAY3D_DESCRIPTOR, 40);
STUB_AT(CUarrayMapInfo, memOperationType, 56);
STUB_AT(CUarrayMapInfo, memHandle, 64);
STUB_SIZE(CUarrayMapInfo, 96);
STUB_AT(CUmulticastObjectProp, size, 8);
STUB_SIZE(CUmulticastObjectProp, 32);
STUB_AT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size, 24);
STUB_SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, 104);
STUB_AT(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size, 8);
STUB_SIZE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, 88);
STUB_SIZE(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, 120);
STUB_AT(CUlaunchConfig, hStream, 32);
STUB_SIZE(CUlaunchConfig, 56);
STUB_AT(CUDA_LAUNCH_PARAMS, hStream, 40);
STUB_SIZE(CUDA_LAUNCH_PARAMS, 56);
STUB_AT(CUDA_KERNEL_NODE_PARAMS, kern, 56);
STUB_SIZE(CUDA_KERNEL_NODE_PARAMS, 72);
STUB_AT(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize, 104);
STUB_SIZE(CUDA_MEM_ALLOC_NODE_PARAMS, 120);
STUB_AT(CUgraphNodeParams, kernel, 16);
STUB_SIZE(CUgraphNodeParams, 256);
STUB_SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS, 32);
STUB_AT(CUDA_MEMCPY2D, dstMemoryType, 72);
STUB_SIZE(CUDA_MEMCPY2D, 128);
STUB_AT(CUDA_MEMCPY3D, srcContext, 64);
STUB_AT(CUDA_MEMCPY3D, dstMemoryType, 120);
STUB_AT(CUDA_MEMCPY3D, WidthInBytes, 176);
STUB_SIZE(CUDA_MEMCPY3D, 200);

#endif
