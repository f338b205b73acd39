// stub_vmm.c: physical memory and its mappings (cuMemCreate, cuMemMap), as PyTorch's expandable segments use them.
#include <stdlib.h>

#include "stub_internal.h"

enum { VMM_GRAIN = 2 << 20 };

struct mapping {
	struct mapping *next;
	uint64_t address, bytes;
	struct block *physical;
};

// Handles are addresses in a separate space, so that handles are reused as addresses are.
static struct space reserved, handles;
static struct mapping *mappings;

void vmm_reset(void)
{
	space_reset(&reserved, 0x7e0000000000);
	space_reset(&handles, 0x55d000000000);
	mappings = NULL;
}

static bool within(uint64_t address, uint64_t bytes, uint64_t outer, uint64_t outer_bytes)
{
	return address >= outer && bytes <= outer_bytes && address - outer <= outer_bytes - bytes;
}

static bool overlaps(const struct mapping *m, uint64_t address, uint64_t bytes)
{
	return address < m->address + m->bytes && m->address < address + bytes;
}

static bool any_mapping(uint64_t address, uint64_t bytes)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (overlaps(m, address, bytes))
			return true;
	return false;
}

static bool is_reserved(uint64_t address, uint64_t bytes)
{
	for (int i = 0; i < SPACE_BUCKETS; i++)
		for (struct block *b = reserved.live[i]; b; b = b->next)
			if (within(address, bytes, b->address, b->bytes))
				return true;
	return false;
}

// drop_if_unused frees physical memory that has no handle and no mapping.
static void drop_if_unused(struct block *b)
{
	if (b->handles || b->mappings)
		return;
	if (b->kind == BLOCK_FOREIGN)
		subtract(&truth->holders, 1);
	else
		device_discharge(b->device, b->bytes, STUB_CLASS_VMM);
	space_give_back(&handles, b);
}

static CUresult create(CUmemGenericAllocationHandle *handle, uint64_t bytes, const CUmemAllocationProp *prop)
{
	CUresult rc = alloc_failure();
	if (rc)
		return rc;
	if (!handle || !prop || !bytes || bytes % VMM_GRAIN || prop->location.type != 1)
		return CUDA_ERROR_INVALID_VALUE;
	int device = prop->location.id;
	if (device < 0 || device >= STUB_DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	rc = device_charge(device, bytes, STUB_CLASS_VMM);
	if (rc)
		return rc;
	struct block *b = space_take(&handles, bytes, device);
	if (!b) {
		device_discharge(device, bytes, STUB_CLASS_VMM);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	b->handles = 1;
	*handle = b->address;
	return CUDA_SUCCESS;
}

static CUresult let_go(CUmemGenericAllocationHandle handle, uint64_t *bytes)
{
	CUresult rc = free_failure();
	if (rc)
		return rc;
	struct block *b = space_find(&handles, handle);
	if (!b || !b->handles)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = b->handles == 1 ? b->bytes : 0;
	b->handles--;
	drop_if_unused(b);
	return CUDA_SUCCESS;
}

static CUresult map(uint64_t address, uint64_t bytes, uint64_t offset, CUmemGenericAllocationHandle handle)
{
	struct block *b = space_find(&handles, handle);
	if (!b || !b->handles || !bytes || !within(offset, bytes, 0, b->bytes) || !is_reserved(address, bytes) ||
	    any_mapping(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping *m = malloc(sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*m = (struct mapping){ .next = mappings, .address = address, .bytes = bytes, .physical = b };
	mappings = m;
	b->mappings++;
	return CUDA_SUCCESS;
}

static CUresult unmap(uint64_t address, uint64_t bytes)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	for (struct mapping **at = &mappings; *at;) {
		struct mapping *m = *at;
		if (!within(m->address, m->bytes, address, bytes)) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		m->physical->mappings--;
		drop_if_unused(m->physical);
		free(m);
		rc = CUDA_SUCCESS;
	}
	return rc;
}

// retain returns the handle that is mapped at an address and adds a reference.
static CUresult retain(CUmemGenericAllocationHandle *handle, uint64_t address)
{
	for (struct mapping *m = mappings; handle && m; m = m->next) {
		if (!overlaps(m, address, 1))
			continue;
		m->physical->handles++;
		*handle = m->physical->address;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult reserve(CUdeviceptr *ptr, uint64_t bytes)
{
	if (!ptr || !bytes || bytes % VMM_GRAIN)
		return CUDA_ERROR_INVALID_VALUE;
	struct block *b = space_take(&reserved, bytes, -1);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ptr = b->address;
	return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr ptr, uint64_t bytes)
{
	struct block *b = space_find(&reserved, ptr);
	if (!b || b->bytes != bytes || any_mapping(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	space_give_back(&reserved, b);
	return CUDA_SUCCESS;
}

static CUresult give_out(void *out, CUmemGenericAllocationHandle handle, int type)
{
	struct block *b = space_find(&handles, handle);
	return b && b->handles ? share_out(out, type, handle, b->bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult vmm_holder(CUmemGenericAllocationHandle *handle, uint64_t bytes)
{
	struct block *b = space_take(&handles, bytes, -1);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->kind = BLOCK_FOREIGN;
	add(&truth->holders, 1);
	b->handles = 1;
	*handle = b->address;
	return CUDA_SUCCESS;
}

CUresult vmm_range(CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t bytes)
{
	struct block *b = space_find(&handles, handle);
	return b && bytes && within(offset, bytes, 0, b->bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult take_in(CUmemGenericAllocationHandle *handle, const void *in, int type)
{
	struct shared shared;
	CUresult rc = handle ? share_in(in, type, &shared) : CUDA_ERROR_INVALID_VALUE;
	return rc ? rc : vmm_holder(handle, shared.bytes);
}

API CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr hint, uint64_t flags)
	BODY(cuMemAddressReserve, bytes, ((void)alignment, (void)hint, (void)flags, LOCKED(reserve(ptr, bytes))))

API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
	BODY(cuMemAddressFree, bytes, LOCKED(unreserve(ptr, bytes)))

API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
			 uint64_t flags)
	BODY(cuMemCreate, bytes, ((void)flags, LOCKED(create(handle, bytes, prop))))

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	uint64_t bytes = 0;
	BODY(cuMemRelease, bytes, LOCKED(let_go(handle, &bytes)))
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
	BODY(cuMemRetainAllocationHandle, 0, LOCKED(retain(handle, (uintptr_t)address)))

API CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, uint64_t flags)
	BODY(cuMemMap, bytes, ((void)flags, LOCKED(map(ptr, bytes, offset, handle))))

API CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
	BODY(cuMemUnmap, bytes, LOCKED(unmap(ptr, bytes)))

API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t desc_n)
	BODY(cuMemSetAccess, bytes,
	     LOCKED(desc && desc_n && any_mapping(ptr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE))

API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type, uint64_t flags)
	BODY(cuMemExportToShareableHandle, 0, ((void)flags, LOCKED(give_out(out, handle, type))))

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type)
	BODY(cuMemImportFromShareableHandle, 0, LOCKED(take_in(handle, shared, type)))
