// stub_vmm.c: physical memory apart from addresses (cuMemCreate, cuMemMap), as PyTorch's expandable segments use it.
#include <stdlib.h>

#include "stub_internal.h"

enum { VMM_GRAIN = 2 << 20 };

struct mapping {
	struct mapping *next;
	uint64_t address, bytes;
	struct block *physical;
};

// Handles are addresses of a space of their own, so that a handle is given out again as an address is.
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

// drop_if_unused ends physical memory that has neither its handle nor a mapping.
static void drop_if_unused(struct block *b)
{
	if (!b->released || b->mappings)
		return;
	device_discharge(b->device, b->bytes);
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
	rc = device_charge(device, bytes);
	if (rc)
		return rc;
	struct block *b = space_take(&handles, bytes, device);
	if (!b) {
		device_discharge(device, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = b->address;
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle, uint64_t *bytes)
{
	CUresult rc = free_failure();
	if (rc)
		return rc;
	struct block *b = space_find(&handles, handle);
	if (!b || b->released)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = b->bytes;
	b->released = true;
	drop_if_unused(b);
	return CUDA_SUCCESS;
}

static CUresult map(uint64_t address, uint64_t bytes, uint64_t offset, CUmemGenericAllocationHandle handle)
{
	struct block *b = space_find(&handles, handle);
	if (!b || b->released || !bytes || !within(offset, bytes, 0, b->bytes) || !is_reserved(address, bytes) ||
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

API CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr hint,
				 unsigned long long flags)
{
	(void)alignment, (void)hint, (void)flags;
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	if (ptr && bytes && bytes % VMM_GRAIN == 0) {
		memory_lock();
		struct block *b = space_take(&reserved, bytes, -1);
		memory_unlock();
		rc = b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		if (b)
			*ptr = b->address;
	}
	return count(CALL_cuMemAddressReserve, rc, bytes);
}

API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	memory_lock();
	struct block *b = space_find(&reserved, ptr);
	if (b && b->bytes == bytes && !any_mapping(ptr, bytes)) {
		space_give_back(&reserved, b);
		rc = CUDA_SUCCESS;
	}
	memory_unlock();
	return count(CALL_cuMemAddressFree, rc, bytes);
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
			 unsigned long long flags)
{
	(void)flags;
	memory_lock();
	CUresult rc = create(handle, bytes, prop);
	memory_unlock();
	return count(CALL_cuMemCreate, rc, bytes);
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	uint64_t bytes = 0;
	memory_lock();
	CUresult rc = release(handle, &bytes);
	memory_unlock();
	return count(CALL_cuMemRelease, rc, bytes);
}

API CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		      unsigned long long flags)
{
	(void)flags;
	memory_lock();
	CUresult rc = map(ptr, bytes, offset, handle);
	memory_unlock();
	return count(CALL_cuMemMap, rc, bytes);
}

API CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	memory_lock();
	CUresult rc = unmap(ptr, bytes);
	memory_unlock();
	return count(CALL_cuMemUnmap, rc, bytes);
}

API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t desc_n)
{
	memory_lock();
	CUresult rc = desc && desc_n && any_mapping(ptr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	memory_unlock();
	return count(CALL_cuMemSetAccess, rc, bytes);
}
