// stub_memory.c: device, managed, pitched and stream-ordered memory, and requested failures of its calls.
#include <pthread.h>

#include "stub_internal.h"

static pthread_mutex_t mu;

// guarded by mu
static struct space device_space;
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

// Another thread may have held the lock at the fork. The child does not have that thread, so it needs a new lock.
void memory_reset(void)
{
	pthread_mutex_init(&mu, NULL);
	space_reset(&device_space, 0x7d0000000000);
	host_reset();
	vmm_reset();
	array_reset();
	pool_reset();
	share_reset();
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

CUresult device_charge(int device, uint64_t bytes, enum stub_class class)
{
	if (bytes > STUB_DEVICE_BYTES - used[device])
		return CUDA_ERROR_OUT_OF_MEMORY;
	used[device] += bytes;
	add(&truth->live_bytes, bytes);
	add(&truth->live_allocations, 1);
	add(&truth->class_bytes[class], bytes);
	add(&truth->cards[device_card(device)].live_bytes, bytes);
	if (truth->live_bytes > truth->peak_bytes)
		__atomic_store_n(&truth->peak_bytes, truth->live_bytes, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

void device_discharge(int device, uint64_t bytes, enum stub_class class)
{
	used[device] -= bytes;
	subtract(&truth->live_bytes, bytes);
	subtract(&truth->live_allocations, 1);
	subtract(&truth->class_bytes[class], bytes);
	subtract(&truth->cards[device_card(device)].live_bytes, bytes);
}

struct block *device_take(uint64_t bytes, int device, enum block_kind kind, const struct context *owner)
{
	struct block *b = space_take(&device_space, bytes, device);
	if (b) {
		b->kind = kind;
		b->owner = owner;
		if (kind == BLOCK_FOREIGN)
			add(&truth->holders, 1);
	}
	return b;
}

struct block *device_opened(const struct context *owner, uint64_t origin)
{
	for (int i = 0; i < SPACE_BUCKETS; i++)
		for (struct block *b = device_space.live[i]; b; b = b->next)
			if (b->kind == BLOCK_FOREIGN && b->owner == owner && b->origin == origin)
				return b;
	return NULL;
}

struct block *device_find(uint64_t address)
{
	return space_find(&device_space, address);
}

static void uncharge(const struct block *b)
{
	if (b->kind == BLOCK_OWNED || b->kind == BLOCK_POOL)
		device_discharge(b->device, b->bytes, b->class);
	if (b->kind == BLOCK_FOREIGN)
		subtract(&truth->holders, 1);
	if (b->kind == BLOCK_POOL)
		pool_discharge(b->pool, b->bytes);
}

void device_give_back(struct block *b)
{
	uncharge(b);
	space_give_back(&device_space, b);
}

void memory_end(const struct context *owner)
{
	space_end(&device_space, owner, uncharge);
}

static CUresult allocate_fresh(CUdeviceptr *dptr, uint64_t bytes, enum stub_class class, struct pool *pool, int device)
{
	bool pooled = class == STUB_CLASS_POOL;
	CUresult rc = pooled ? pool_charge(pool, bytes) : CUDA_SUCCESS;
	if (rc)
		return rc;
	rc = device_charge(device, bytes, class);
	struct block *b = rc ? NULL : device_take(bytes, device, pooled ? BLOCK_POOL : BLOCK_OWNED, current_context());
	if (!b) {
		if (!rc)
			device_discharge(device, bytes, class);
		if (pooled)
			pool_discharge(pool, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	b->class = class;
	b->pool = pool;
	*dptr = b->address;
	return CUDA_SUCCESS;
}

// allocate_over returns a live address again. Its region does not change, so that the address space stays consistent.
static CUresult allocate_over(CUdeviceptr *dptr, uint64_t bytes, uint64_t address)
{
	struct block *b = space_find(&device_space, address);
	if (!b)
		return CUDA_ERROR_INVALID_VALUE;
	int device = current_device();
	device_discharge(b->device, b->bytes, b->class);
	CUresult rc = device_charge(device, bytes, STUB_CLASS_DEVICE);
	if (rc) {
		space_give_back(&device_space, b);
		return rc;
	}
	b->bytes = bytes;
	b->class = STUB_CLASS_DEVICE;
	b->device = device;
	b->owner = current_context();
	*dptr = address;
	return CUDA_SUCCESS;
}

static CUresult may_allocate(const CUdeviceptr *dptr, uint64_t bytes)
{
	CUresult rc = alloc_failure();
	if (rc)
		return rc;
	if (current_device() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	return dptr && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate(CUdeviceptr *dptr, uint64_t bytes, enum stub_class class)
{
	CUresult rc = may_allocate(dptr, bytes);
	return rc ? rc : LOCKED(allocate_fresh(dptr, bytes, class, NULL, current_device()));
}

CUresult allocate_in(CUdeviceptr *dptr, uint64_t bytes, struct pool *pool, int device)
{
	CUresult rc = may_allocate(dptr, bytes);
	return rc ? rc : LOCKED(allocate_fresh(dptr, bytes, STUB_CLASS_POOL, pool, device));
}

// Frees the memory of a graph's block. The graph keeps the address.
static void release_block(struct block *b, uint64_t *bytes)
{
	*bytes = b->kind == BLOCK_FOREIGN ? 0 : b->bytes;
	if (b->kind == BLOCK_GRAPH) {
		device_discharge(b->device, b->bytes, b->class);
		b->charged = false;
		return;
	}
	device_give_back(b);
}

CUresult release(CUdeviceptr dptr, uint64_t *bytes)
{
	CUresult rc = free_failure();
	if (rc || !dptr)
		return rc;
	memory_lock();
	struct block *b = space_find(&device_space, dptr);
	if (b && b->kind == BLOCK_GRAPH && !b->charged)
		b = NULL;
	if (b)
		release_block(b, bytes);
	memory_unlock();
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult allocate_first(CUdeviceptr *dptr, uint64_t bytes)
{
	uint64_t over = next_address;
	next_address = 0;
	if (!over)
		return allocate(dptr, bytes, STUB_CLASS_DEVICE);
	CUresult rc = may_allocate(dptr, bytes);
	return rc ? rc : LOCKED(allocate_over(dptr, bytes, over));
}

API CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
	BODY(cuMemAlloc_v2, bytes, allocate_first(dptr, bytes))

static CUresult allocate_managed(CUdeviceptr *dptr, size_t bytes, unsigned flags)
{
	return flags == 1 || flags == 2 ? allocate(dptr, bytes, STUB_CLASS_MANAGED) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags)
	BODY(cuMemAllocManaged, bytes, allocate_managed(dptr, bytes, flags))

static size_t pitch_of(size_t width)
{
	return (width + 511) & ~(size_t)511;
}

static CUresult allocate_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element_bytes)
{
	if (!pitch || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult rc = allocate(dptr, pitch_of(width) * height, STUB_CLASS_DEVICE);
	if (rc == CUDA_SUCCESS)
		*pitch = pitch_of(width);
	return rc;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element_bytes)
	BODY(cuMemAllocPitch_v2, pitch_of(width) * height, allocate_pitch(dptr, pitch, width, height, element_bytes))

// The memory comes from the pool of the CUDA stream's device. The current context does not matter.
static CUresult allocate_async(CUdeviceptr *dptr, size_t bytes, CUstream stream, bool per_thread)
{
	struct graph *g = recording(stream, per_thread);
	int device = stream_device(stream, current_device());
	return g ? graph_record_alloc(g, NULL, dptr, bytes, device) : allocate_in(dptr, bytes, NULL, device);
}

TWINS(cuMemAllocAsync, _ptsz, (CUdeviceptr *dptr, size_t bytes, CUstream stream), bytes,
      allocate_async(dptr, bytes, stream, per_thread))

static CUresult release_async(CUdeviceptr dptr, CUstream stream, bool per_thread, uint64_t *bytes)
{
	struct graph *g = recording(stream, per_thread);
	if (!g)
		return release(dptr, bytes);
	CUresult rc = graph_add(g, NULL, NODE_FREE, NULL, dptr);
	return rc ? rc : RECORDED;
}

#define FREE(name, params, body)                                                                                       \
	API CUresult name params                                                                                       \
	{                                                                                                              \
		uint64_t bytes = 0;                                                                                    \
		BODY(name, bytes, body)                                                                                \
	}

FREE(cuMemFreeAsync, (CUdeviceptr dptr, CUstream stream), release_async(dptr, stream, false, &bytes))
FREE(cuMemFreeAsync_ptsz, (CUdeviceptr dptr, CUstream stream), release_async(dptr, stream, true, &bytes))

static CUresult release_slowly(CUdeviceptr dptr, uint64_t *bytes)
{
	CUresult rc = release(dptr, bytes);
	if (linger_ns)
		wait_until(boot_ns() + linger_ns);
	return rc;
}

FREE(cuMemFree_v2, (CUdeviceptr dptr), release_slowly(dptr, &bytes))

static CUresult information(size_t *available, size_t *total)
{
	int device = current_device();
	if (device < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	memory_lock();
	*available = STUB_DEVICE_BYTES - used[device];
	memory_unlock();
	*total = STUB_DEVICE_BYTES;
	return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
	BODY(cuMemGetInfo_v2, 0, information(available, total))

static CUresult prefetch(CUdeviceptr ptr, size_t bytes, int device)
{
	if (!ptr || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	return device < 0 ? CUDA_SUCCESS : check_device(device);
}

TWINS(cuMemPrefetchAsync, _ptsz, (CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream), bytes,
      ((void)stream, prefetch(ptr, bytes, device)))

TWINS(cuMemPrefetchAsync_v2, _ptsz,
      (CUdeviceptr ptr, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream), bytes,
      ((void)stream, (void)flags, prefetch(ptr, bytes, location.type == CU_LOCATION_DEVICE ? location.id : -1)))

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
