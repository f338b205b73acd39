// stub_memory.c: device, managed, pitched, stream-ordered and pinned host memory, and how its calls are made to fail.
#include <pthread.h>

#include "stub_internal.h"

static pthread_mutex_t mu;

// under mu
static struct space device_space, host_space;
static uint64_t used[STUB_DEVICES];

static __thread CUresult next_alloc_failure, next_free_failure;
static __thread uint64_t next_address;
static __thread unsigned linger_ns;

void memory_lock(void)
{
	pthread_mutex_lock(&mu);
}

void memory_unlock(void)
{
	pthread_mutex_unlock(&mu);
}

// A fork may have happened while another thread, which the child does not have, held the lock: so make a new one.
void memory_reset(void)
{
	pthread_mutex_init(&mu, NULL);
	space_reset(&device_space, 0x7d0000000000);
	space_reset(&host_space, 0x7b0000000000);
	vmm_reset();
	for (int i = 0; i < STUB_DEVICES; i++)
		used[i] = 0;
	next_alloc_failure = next_free_failure = CUDA_SUCCESS;
	next_address = linger_ns = 0;
}

static CUresult once(CUresult *failure)
{
	CUresult rc = *failure;
	*failure = CUDA_SUCCESS;
	return rc;
}

CUresult alloc_failure(void)
{
	return once(&next_alloc_failure);
}

CUresult free_failure(void)
{
	return once(&next_free_failure);
}

CUresult device_charge(int device, uint64_t bytes)
{
	if (bytes > STUB_DEVICE_BYTES - used[device])
		return CUDA_ERROR_OUT_OF_MEMORY;
	used[device] += bytes;
	add(&truth->live_bytes, bytes);
	add(&truth->live_allocations, 1);
	if (truth->live_bytes > truth->peak_bytes)
		__atomic_store_n(&truth->peak_bytes, truth->live_bytes, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

void device_discharge(int device, uint64_t bytes)
{
	used[device] -= bytes;
	subtract(&truth->live_bytes, bytes);
	subtract(&truth->live_allocations, 1);
}

static CUresult allocate_fresh(CUdeviceptr *dptr, uint64_t bytes, int device)
{
	CUresult rc = device_charge(device, bytes);
	if (rc)
		return rc;
	struct block *b = space_take(&device_space, bytes, device);
	if (!b) {
		device_discharge(device, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*dptr = b->address;
	return CUDA_SUCCESS;
}

// allocate_over gives a live address away once more. Its region stays what it was, so that the space stays sound.
static CUresult allocate_over(CUdeviceptr *dptr, uint64_t bytes, int device, uint64_t address)
{
	struct block *b = space_find(&device_space, address);
	if (!b)
		return CUDA_ERROR_INVALID_VALUE;
	device_discharge(b->device, b->bytes);
	CUresult rc = device_charge(device, bytes);
	if (rc) {
		space_give_back(&device_space, b);
		return rc;
	}
	b->bytes = bytes;
	b->device = device;
	*dptr = address;
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *dptr, uint64_t bytes, uint64_t over)
{
	CUresult rc = alloc_failure();
	if (rc)
		return rc;
	int device = current_device();
	if (device < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!dptr || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memory_lock();
	rc = over ? allocate_over(dptr, bytes, device, over) : allocate_fresh(dptr, bytes, device);
	memory_unlock();
	return rc;
}

static CUresult release(CUdeviceptr dptr, uint64_t *bytes)
{
	CUresult rc = free_failure();
	if (rc || !dptr)
		return rc;
	memory_lock();
	struct block *b = space_find(&device_space, dptr);
	if (b) {
		*bytes = b->bytes;
		device_discharge(b->device, b->bytes);
		space_give_back(&device_space, b);
	}
	memory_unlock();
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult allocate_host(void **pp, uint64_t bytes)
{
	CUresult rc = alloc_failure();
	if (rc)
		return rc;
	if (current_device() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!pp || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memory_lock();
	struct block *b = space_take(&host_space, bytes, -1);
	if (b) {
		add(&truth->host_live_bytes, bytes);
		add(&truth->host_live_allocations, 1);
		*pp = (void *)(uintptr_t)b->address;
	}
	memory_unlock();
	return b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release_host(void *p, uint64_t *bytes)
{
	CUresult rc = free_failure();
	if (rc || !p)
		return rc;
	memory_lock();
	struct block *b = space_find(&host_space, (uintptr_t)p);
	if (b) {
		*bytes = b->bytes;
		subtract(&truth->host_live_bytes, b->bytes);
		subtract(&truth->host_live_allocations, 1);
		space_give_back(&host_space, b);
	}
	memory_unlock();
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
	uint64_t over = next_address;
	next_address = 0;
	return count(CALL_cuMemAlloc_v2, allocate(dptr, bytes, over), bytes);
}

API CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags)
{
	CUresult rc = flags == 1 || flags == 2 ? allocate(dptr, bytes, 0) : CUDA_ERROR_INVALID_VALUE;
	return count(CALL_cuMemAllocManaged, rc, bytes);
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element_bytes)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	size_t rounded = (width + 511) & ~(size_t)511;
	if (pitch && (element_bytes == 4 || element_bytes == 8 || element_bytes == 16))
		rc = allocate(dptr, rounded * height, 0);
	if (rc == CUDA_SUCCESS)
		*pitch = rounded;
	return count(CALL_cuMemAllocPitch_v2, rc, rounded * height);
}

API CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
	(void)stream;
	return count(CALL_cuMemAllocAsync, allocate(dptr, bytes, 0), bytes);
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
	(void)stream;
	return count(CALL_cuMemAllocAsync_ptsz, allocate(dptr, bytes, 0), bytes);
}

API CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	uint64_t bytes = 0;
	CUresult rc = release(dptr, &bytes);
	if (linger_ns)
		wait_until(monotonic_ns() + linger_ns);
	return count(CALL_cuMemFree_v2, rc, bytes);
}

API CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
	(void)stream;
	uint64_t bytes = 0;
	CUresult rc = release(dptr, &bytes);
	return count(CALL_cuMemFreeAsync, rc, bytes);
}

API CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
	(void)stream;
	uint64_t bytes = 0;
	CUresult rc = release(dptr, &bytes);
	return count(CALL_cuMemFreeAsync_ptsz, rc, bytes);
}

API CUresult cuMemHostAlloc(void **pp, size_t bytes, unsigned flags)
{
	(void)flags;
	return count(CALL_cuMemHostAlloc, allocate_host(pp, bytes), bytes);
}

API CUresult cuMemFreeHost(void *p)
{
	uint64_t bytes = 0;
	CUresult rc = release_host(p, &bytes);
	return count(CALL_cuMemFreeHost, rc, bytes);
}

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
	CUresult rc = CUDA_ERROR_INVALID_CONTEXT;
	int device = current_device();
	if (device >= 0) {
		memory_lock();
		*available = STUB_DEVICE_BYTES - used[device];
		memory_unlock();
		*total = STUB_DEVICE_BYTES;
		rc = CUDA_SUCCESS;
	}
	return count(CALL_cuMemGetInfo_v2, rc, 0);
}

API void stubFailNextAlloc(int code)
{
	keep_frame();
	next_alloc_failure = code;
}

API void stubFailNextFree(int code)
{
	keep_frame();
	next_free_failure = code;
}

API void stubNextAddress(unsigned long long address)
{
	keep_frame();
	next_address = address;
}

API void stubFreeLinger(unsigned nanoseconds)
{
	keep_frame();
	linger_ns = nanoseconds;
}
