// stub_internal.h: what the files of the stub library share. A call is added by a row of STUB_EACH_CALL, its prototype
// in stub.h and its body.
#ifndef GPUTAP_STUB_INTERNAL_H
#define GPUTAP_STUB_INTERNAL_H

#include <stdbool.h>

#include "stub.h"

// API marks an exported function. Its first instruction must be the one byte `push %rbp`, as in the real driver: Linux
// emulates an x86 uprobe there and single-steps most others, at 20 times the cost. The build flags and keep_frame see
// to it. An exported function never calls another, or one call of the program would be two for the probes.
#define API __attribute__((visibility("default"), noinline, noclone))

#define STUB_EACH_CALL(X)                                                                                              \
	X(cuInit)                                                                                                      \
	X(cuDeviceGetCount)                                                                                            \
	X(cuDeviceGet)                                                                                                 \
	X(cuDeviceGetName)                                                                                             \
	X(cuDeviceTotalMem_v2)                                                                                         \
	X(cuDeviceGetUuid)                                                                                             \
	X(cuDevicePrimaryCtxRetain)                                                                                    \
	X(cuCtxSetCurrent)                                                                                             \
	X(cuMemAlloc_v2)                                                                                               \
	X(cuMemAllocManaged)                                                                                           \
	X(cuMemAllocPitch_v2)                                                                                          \
	X(cuMemAllocAsync)                                                                                             \
	X(cuMemAllocAsync_ptsz)                                                                                        \
	X(cuMemFree_v2)                                                                                                \
	X(cuMemFreeAsync)                                                                                              \
	X(cuMemFreeAsync_ptsz)                                                                                         \
	X(cuMemHostAlloc)                                                                                              \
	X(cuMemFreeHost)                                                                                               \
	X(cuMemGetInfo_v2)                                                                                             \
	X(cuMemAddressReserve)                                                                                         \
	X(cuMemAddressFree)                                                                                            \
	X(cuMemCreate)                                                                                                 \
	X(cuMemRelease)                                                                                                \
	X(cuMemMap)                                                                                                    \
	X(cuMemUnmap)                                                                                                  \
	X(cuMemSetAccess)                                                                                              \
	X(cuLaunchKernel)                                                                                              \
	X(cuLaunchKernel_ptsz)                                                                                         \
	X(cuLaunchKernelEx)                                                                                            \
	X(cuLaunchKernelEx_ptsz)                                                                                       \
	X(cuGraphLaunch)                                                                                               \
	X(cuMemcpyHtoD_v2)                                                                                             \
	X(cuMemcpyHtoD_v2_ptds)                                                                                        \
	X(cuMemcpyDtoH_v2)                                                                                             \
	X(cuMemcpyDtoH_v2_ptds)                                                                                        \
	X(cuMemcpyDtoD_v2)                                                                                             \
	X(cuMemcpyDtoD_v2_ptds)                                                                                        \
	X(cuMemcpyHtoDAsync_v2)                                                                                        \
	X(cuMemcpyHtoDAsync_v2_ptsz)                                                                                   \
	X(cuMemcpyDtoHAsync_v2)                                                                                        \
	X(cuMemcpyDtoHAsync_v2_ptsz)                                                                                   \
	X(cuMemcpyDtoDAsync_v2)                                                                                        \
	X(cuMemcpyDtoDAsync_v2_ptsz)                                                                                   \
	X(cuCtxSynchronize)                                                                                            \
	X(cuStreamSynchronize)                                                                                         \
	X(cuLibraryLoadData)                                                                                           \
	X(cuLibraryGetKernel)                                                                                          \
	X(cuModuleLoadData)                                                                                            \
	X(cuModuleGetFunction)                                                                                         \
	X(cuKernelGetFunction)

#define STUB_CALL_ID(name) CALL_##name,
enum call { STUB_EACH_CALL(STUB_CALL_ID) CALLS_N };
_Static_assert((int)CALLS_N <= (int)STUB_CALLS, "truth has no room for another call");

extern struct stub_truth *truth;

static inline void add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static inline void subtract(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_sub(counter, n, __ATOMIC_RELAXED);
}

// keep_frame makes the function it is inlined in need its stack frame, at no instruction: gcc leaves the frame pointer
// of a leaf without stack variables out, whatever the flags.
static inline __attribute__((always_inline)) void keep_frame(void)
{
	char local;
	__asm__ volatile("" : "=m"(local));
}

// count books the end of one call and returns rc.
static inline __attribute__((always_inline)) CUresult count(enum call call, CUresult rc, uint64_t bytes)
{
	keep_frame();
	struct stub_call *c = &truth->calls[call];
	add(rc == CUDA_SUCCESS ? &c->ok : &c->failed, 1);
	if (rc == CUDA_SUCCESS && bytes)
		add(&c->bytes, bytes);
	return rc;
}

// current_device is the ordinal of this thread's context, or -1.
int current_device(void);
void driver_reset(void);

uint64_t monotonic_ns(void);
// wait_until comes back within a microsecond after the instant, unless Linux took the CPU away.
void wait_until(uint64_t monotonic);

// Memory: stub_memory.c. Everything below is under memory_lock.
void memory_lock(void);
void memory_unlock(void);
void memory_reset(void);
// alloc_failure and free_failure hand out an ordered failure once: its code, or 0.
CUresult alloc_failure(void);
CUresult free_failure(void);
// device_charge books device-side bytes as live, or returns CUDA_ERROR_OUT_OF_MEMORY.
CUresult device_charge(int device, uint64_t bytes);
void device_discharge(int device, uint64_t bytes);
void vmm_reset(void);

// An address space: stub_space.c.
struct block {
	struct block *next;
	uint64_t address;
	uint64_t region; // rounded bytes: what the address space gave
	uint64_t bytes;  // what the caller asked for
	int device;
	unsigned mappings; // of a cuMemCreate handle
	bool released;     // of a cuMemCreate handle
};

enum { SPACE_BUCKETS = 1 << 14 };

struct space {
	uint64_t top, end;
	struct block *live[SPACE_BUCKETS];
	struct block *freed[SPACE_BUCKETS]; // each list newest first
};

// space_take gives the newest freed address of an equal region, else a new one; NULL when the space is full.
struct block *space_take(struct space *s, uint64_t bytes, int device);
struct block *space_find(struct space *s, uint64_t address);
void space_give_back(struct space *s, struct block *b);
void space_reset(struct space *s, uint64_t start);

#endif
