// stub_pool.c: memory pools. Allocations from a destroyed pool stay live until they are freed.
#include <string.h>

#include "stub_internal.h"

enum { POOLS_N = 64 };
#define RESERVE_GRAIN (32ull << 20)

struct pool {
	uintptr_t handle; // 0 = destroyed
	uint64_t max;     // 0 = no limit
	int device;
	uint64_t used, used_high, reserved, reserved_high;
	unsigned blocks;
	bool imported;
};

// guarded by the memory lock
static struct pool pools[POOLS_N];

void pool_reset(void)
{
	memset(pools, 0, sizeof pools);
}

static struct pool *find(CUmemoryPool handle)
{
	for (struct pool *p = pools; handle && p < pools + POOLS_N; p++)
		if (p->handle == (uintptr_t)handle)
			return p;
	return NULL;
}

static void keep_high(uint64_t *high, uint64_t n)
{
	if (n > *high)
		*high = n;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + RESERVE_GRAIN - 1) / RESERVE_GRAIN * RESERVE_GRAIN;
}

CUresult pool_charge(struct pool *p, uint64_t bytes)
{
	if (!p)
		return CUDA_SUCCESS;
	if (p->max && bytes > p->max - p->used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->used += bytes;
	p->blocks++;
	if (round_up(p->used) > p->reserved)
		p->reserved = round_up(p->used);
	keep_high(&p->used_high, p->used);
	keep_high(&p->reserved_high, p->reserved);
	return CUDA_SUCCESS;
}

void pool_discharge(struct pool *p, uint64_t bytes)
{
	if (!p)
		return;
	p->used -= bytes;
	p->blocks--;
}

// An entry is reused when no allocation is left in it.
static CUresult make(CUmemoryPool *handle, uint64_t max, int device, bool imported)
{
	for (int i = 0; i < POOLS_N; i++) {
		if (pools[i].handle || pools[i].blocks)
			continue;
		pools[i] = (struct pool){
			.handle = 0x5583b0010020 + 0x4e0 * (uintptr_t)i, .max = max, .device = device,
			.imported = imported,
		};
		*handle = (CUmemoryPool)pools[i].handle;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(CUmemoryPool *handle, const CUmemPoolProps *props)
{
	if (!handle || !props || props->allocType != 1 || props->location.type != CU_LOCATION_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult rc = check_device(props->location.id);
	return rc ? rc : make(handle, props->maxSize, props->location.id, false);
}

static CUresult destroy(CUmemoryPool handle)
{
	struct pool *p = find(handle);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	p->handle = 0;
	return CUDA_SUCCESS;
}

static CUresult trim(CUmemoryPool handle, uint64_t keep)
{
	struct pool *p = find(handle);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t least = round_up(p->used > keep ? p->used : keep);
	if (p->reserved > least)
		p->reserved = least;
	return CUDA_SUCCESS;
}

static CUresult attribute(CUmemoryPool handle, int which, uint64_t *value)
{
	const struct pool *p = find(handle);
	if (!p || !value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (which) {
	case CU_POOL_RELEASE_THRESHOLD: *value = 0; return CUDA_SUCCESS;
	case CU_POOL_RESERVED_CURRENT: *value = p->reserved; return CUDA_SUCCESS;
	case CU_POOL_RESERVED_HIGH: *value = p->reserved_high; return CUDA_SUCCESS;
	case CU_POOL_USED_CURRENT: *value = p->used; return CUDA_SUCCESS;
	case CU_POOL_USED_HIGH: *value = p->used_high; return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static struct pool *lookup(CUmemoryPool handle)
{
	memory_lock();
	struct pool *p = find(handle);
	memory_unlock();
	return p;
}

static CUresult allocate_from(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream stream, bool per_thread)
{
	struct pool *p = lookup(handle);
	if (!p || p->imported)
		return CUDA_ERROR_INVALID_VALUE;
	struct graph *g = recording(stream, per_thread);
	return g ? graph_record_alloc(g, NULL, dptr, bytes, p->device) : allocate_in(dptr, bytes, p, p->device);
}

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
	BODY(cuMemPoolCreate, 0, LOCKED(create(pool, props)))

API CUresult cuMemPoolDestroy(CUmemoryPool pool)
	BODY(cuMemPoolDestroy, 0, LOCKED(destroy(pool)))

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
	BODY(cuMemPoolTrimTo, 0, LOCKED(trim(pool, keep)))

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int which, void *value)
	BODY(cuMemPoolGetAttribute, 0, LOCKED(attribute(pool, which, value)))

TWINS(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream), bytes,
      allocate_from(dptr, bytes, pool, stream, per_thread))

static CUresult export_pointer(CUmemPoolPtrExportData *token, CUdeviceptr ptr)
{
	struct block *b = device_find(ptr);
	if (!token || !b || b->kind != BLOCK_POOL)
		return CUDA_ERROR_INVALID_VALUE;
	*token = token_make(ptr, b->bytes);
	return CUDA_SUCCESS;
}

static CUresult import_pointer(CUdeviceptr *ptr, CUmemoryPool handle, const CUmemPoolPtrExportData *token)
{
	struct shared shared;
	struct pool *p = find(handle);
	if (!ptr || !p || !p->imported || !token || !token_read(token, &shared))
		return CUDA_ERROR_INVALID_VALUE;
	struct block *b = device_take(shared.bytes, -1, BLOCK_FOREIGN, NULL);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ptr = b->address;
	return CUDA_SUCCESS;
}

static CUresult give_out(void *out, CUmemoryPool handle, int type)
{
	return find(handle) ? share_out(out, type, (uintptr_t)handle, 0) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult take_in(CUmemoryPool *handle, const void *in, int type)
{
	struct shared shared;
	CUresult rc = handle ? share_in(in, type, &shared) : CUDA_ERROR_INVALID_VALUE;
	return rc ? rc : make(handle, 0, -1, true);
}

API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *token, CUdeviceptr ptr)
	BODY(cuMemPoolExportPointer, 0, LOCKED(export_pointer(token, ptr)))

API CUresult cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *token)
	BODY(cuMemPoolImportPointer, 0, LOCKED(import_pointer(ptr, pool, token)))

API CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool, int type, uint64_t flags)
	BODY(cuMemPoolExportToShareableHandle, 0, ((void)flags, LOCKED(give_out(out, pool, type))))

API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shared, int type, uint64_t flags)
	BODY(cuMemPoolImportFromShareableHandle, 0, ((void)flags, LOCKED(take_in(pool, shared, type))))
