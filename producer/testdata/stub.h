// stub.h: what a program sees of the stub CUDA driver library (libcuda.so.1): the CUDA calls it exports, the switches
// that make it misbehave on purpose, and the totals it keeps of itself.
//
// The totals are the truth that gputap is tested against, so nothing of gputap is used to make them. Addresses and
// handles are numbers of a simulated device: no memory stands behind any of them, host memory included.
#ifndef GPUTAP_STUB_H
#define GPUTAP_STUB_H

#include <stddef.h>
#include <stdint.h>

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
};

enum { STUB_DEVICES = 2 };
#define STUB_DEVICE_BYTES (141ull << 30)

// Copies are this slow (bytes per second) when synchronous; asynchronous ones return at once.
#define STUB_HTOD_RATE 10000000000ull
#define STUB_DTOH_RATE 12000000000ull
#define STUB_DTOD_RATE 100000000000ull

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUlib_st *CUlibrary;
typedef struct CUmod_st *CUmodule;
typedef struct CUgraphExec_st *CUgraphExec;

typedef struct {
	unsigned char bytes[16];
} CUuuid;

typedef struct {
	int type; // 1 = device
	int id;   // ordinal
} CUmemLocation;

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
	unsigned gridDimX, gridDimY, gridDimZ;
	unsigned blockDimX, blockDimY, blockDimZ;
	unsigned sharedMemBytes;
	CUstream hStream;
	void *attrs;
	unsigned numAttrs;
} CUlaunchConfig;

_Static_assert(sizeof(CUmemAllocationProp) == 32, "as in cuda.h of CUDA 12.6");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "as in cuda.h of CUDA 12.6");
_Static_assert(offsetof(CUlaunchConfig, hStream) == 32 && sizeof(CUlaunchConfig) == 56, "as in cuda.h of CUDA 12.6");

CUresult cuInit(unsigned flags);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes);
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags);
CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element_bytes);
CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream);
CUresult cuMemFree_v2(CUdeviceptr dptr);
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream);
CUresult cuMemHostAlloc(void **pp, size_t bytes, unsigned flags);
CUresult cuMemFreeHost(void *p);
CUresult cuMemGetInfo_v2(size_t *available, size_t *total);

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr hint,
			     unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t count);

#define STUB_LAUNCH_KERNEL(name)                                                                                       \
	CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,      \
		      unsigned shared_bytes, CUstream stream, void **params, void **extra)
STUB_LAUNCH_KERNEL(cuLaunchKernel);
STUB_LAUNCH_KERNEL(cuLaunchKernel_ptsz);
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes);
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dst, const void *src, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes);
CUresult cuMemcpyDtoH_v2_ptds(void *dst, CUdeviceptr src, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuCtxSynchronize(void);
CUresult cuStreamSynchronize(CUstream stream);

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, void *jit_options, void **jit_values,
			   unsigned jit_n, void *library_options, void **library_values, unsigned library_n);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);

// Not CUDA. The switches belong to the thread that calls them.

// stubNop does nothing and is not counted: the floor of a benchmark.
void stubNop(uint64_t a, uint64_t b, uint64_t c);

// The next device allocation (host allocation, cuMemCreate) or free of this thread fails with code; a block whose free
// failed stays live. 0 takes the order back.
void stubFailNextAlloc(int code);
void stubFailNextFree(int code);

// The next cuMemAlloc_v2 of this thread returns this live address; the older allocation there is gone from then on.
void stubNextAddress(unsigned long long address);

// From now on cuMemFree_v2 of this thread returns this long after others may be given the address.
void stubFreeLinger(unsigned nanoseconds);

// For a child made by the clone3 system call, which no fork handler sees. After fork() it happens by itself: the child
// starts with its own truth, no memory, no context, no handles, and must call cuInit.
void stubForked(void);

enum { STUB_TRUTH_VERSION = 1, STUB_CALLS = 96, STUB_KERNELS = 64 };

// One exported CUDA function. An entry starts 80 bytes after the one before.
struct stub_call {
	char symbol[48];  // +0   zero-terminated ELF name
	uint64_t ok;      // +48  returned 0
	uint64_t failed;  // +56  returned anything else
	uint64_t bytes;   // +64  of the ok calls: allocated, freed, reserved, mapped, copied…: what the caller
	                  //      asked for (pitched memory: pitch x height)
	uint64_t busy_ns; // +72  synchronous copies only: time from first to last statement
};

// Launches under one name, whatever the library, handle or launch call. An entry starts 104 bytes after the one before.
struct stub_kernel {
	char name[96];     // +0   zero-terminated; empty = this entry and those behind it are unused
	uint64_t launches; // +96
};

// If GPUTAP_STUB_TRUTH names a directory, each process image has this struct in <dir>/<pid>.<boot-time ns at load>,
// shared, so that it outlives SIGKILL. Little endian. Fields are read while they change: each is exact by itself, two
// agree only while the program rests. The magic is written last.
struct stub_truth {
	char magic[8];                  //     0  "GPUTRUTH"
	uint32_t version;               //     8
	uint32_t pid;                   //    12
	uint64_t live_bytes;            //    16  device side: device, managed, pitched, async and cuMemCreate
	uint64_t live_allocations;      //    24  the same; a cuMemCreate counts until released and unmapped
	uint64_t peak_bytes;            //    32  highest live_bytes
	uint64_t host_live_bytes;       //    40  pinned host memory
	uint64_t host_live_allocations; //    48
	uint32_t calls_n;               //    56  used entries of calls
	uint32_t pad;                   //    60
	struct stub_call calls[STUB_CALLS];       //    64
	struct stub_kernel kernels[STUB_KERNELS]; //  7744
};                                                // 14400

_Static_assert(offsetof(struct stub_truth, calls) == 64, "layout is read by Go");
_Static_assert(offsetof(struct stub_truth, kernels) == 7744, "layout is read by Go");
_Static_assert(sizeof(struct stub_truth) == 14400, "layout is read by Go");

// The truth of this process. Its address never changes.
const struct stub_truth *stubTruth(void);

#endif
