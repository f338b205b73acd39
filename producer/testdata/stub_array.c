// stub_array.c: arrays and mipmapped arrays. Each takes exactly the bytes of its descriptor.
#include "stub_internal.h"

enum { HANDLE_GRAIN = 512 };

// Handles are addresses in a separate space. Guarded by the memory lock.
static struct space arrays;

void array_reset(void)
{
	space_reset(&arrays, 0x5584a0000000);
}

static uint64_t format_bytes(int format)
{
	switch (format) {
	case 0x01: case 0x08: return 1;
	case 0x02: case 0x09: case 0x10: return 2;
	case 0x03: case 0x0a: case 0x20: return 4;
	}
	return 0;
}

static uint64_t extent(uint64_t n, unsigned level)
{
	return n >> level ? n >> level : 1;
}

// Layers are not a dimension: every level has the same number of them.
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level)
{
	unsigned depth_level = desc->Flags & CU_ARRAY_LAYERED ? 0 : level;
	return extent(desc->Width, level) * extent(desc->Height, level) * extent(desc->Depth, depth_level) *
	       desc->NumChannels * format_bytes(desc->Format);
}

static CUresult take(void *out, uint64_t bytes, enum block_kind kind)
{
	const struct context *owner = current_context();
	if (!owner)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult rc = bytes ? device_charge(owner->device, bytes, STUB_CLASS_ARRAY) : CUDA_SUCCESS;
	struct block *b = rc ? NULL : space_take(&arrays, HANDLE_GRAIN, owner->device);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->bytes = bytes;
	b->kind = kind;
	b->owner = owner;
	if (kind == BLOCK_FOREIGN)
		add(&truth->holders, 1);
	*(uintptr_t *)out = b->address;
	return CUDA_SUCCESS;
}

static void gone(const struct block *b)
{
	if (b->kind == BLOCK_FOREIGN)
		subtract(&truth->holders, 1);
	if (b->bytes)
		device_discharge(b->device, b->bytes, STUB_CLASS_ARRAY);
}

void array_end(const struct context *owner)
{
	space_end(&arrays, owner, gone);
}

// Sparse arrays, and arrays with deferred mapping, get their memory from cuMemMapArrayAsync.
static uint64_t descriptor_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels)
{
	uint64_t sum = 0;
	if (desc->Flags & (CU_ARRAY_SPARSE | CU_ARRAY_DEFERRED))
		return 0;
	for (unsigned level = 0; level < levels; level++)
		sum += array_bytes(desc, level);
	return sum;
}

static CUresult create(void *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels, uint64_t *bytes)
{
	CUresult rc = alloc_failure();
	if (rc)
		return rc;
	if (!desc || !levels || levels > 32 || !array_bytes(desc, 0) || !desc->Width)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = descriptor_bytes(desc, levels);
	return take(out, *bytes, BLOCK_OWNED);
}

static CUresult create_flat(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc, uint64_t *bytes)
{
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR full = { desc->Width, desc->Height, 0, desc->Format, desc->NumChannels, 0 };
	return create(array, &full, 1, bytes);
}

CUresult array_foreign(CUmipmappedArray *array)
{
	return take(array, 0, BLOCK_FOREIGN);
}

static CUresult destroy(const void *array, uint64_t *bytes)
{
	CUresult rc = free_failure();
	struct block *b = rc ? NULL : space_find(&arrays, (uintptr_t)array);
	if (!b)
		return rc ? rc : CUDA_ERROR_INVALID_HANDLE;
	*bytes = b->bytes;
	gone(b);
	space_give_back(&arrays, b);
	return CUDA_SUCCESS;
}

API CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	uint64_t bytes = 0;
	BODY(cuArrayCreate_v2, bytes, LOCKED(create_flat(array, desc, &bytes)))
}

API CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	uint64_t bytes = 0;
	BODY(cuArray3DCreate_v2, bytes, LOCKED(create(array, desc, 1, &bytes)))
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels)
{
	uint64_t bytes = 0;
	BODY(cuMipmappedArrayCreate, bytes, LOCKED(create(array, desc, levels, &bytes)))
}

API CUresult cuArrayDestroy(CUarray array)
{
	uint64_t bytes = 0;
	BODY(cuArrayDestroy, bytes, LOCKED(destroy(array, &bytes)))
}

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	uint64_t bytes = 0;
	BODY(cuMipmappedArrayDestroy, bytes, LOCKED(destroy(array, &bytes)))
}

// Mapping memory into a sparse array adds no bytes, because they count for the cuMemCreate handle.
static CUresult map(const CUarrayMapInfo *list, unsigned n)
{
	if (!list || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++)
		if (!list[i].resource || (list[i].memOperationType != 1 && list[i].memOperationType != 2))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

TWINS(cuMemMapArrayAsync, _ptsz, (CUarrayMapInfo *list, unsigned n, CUstream stream), n,
      ((void)stream, map(list, n)))
