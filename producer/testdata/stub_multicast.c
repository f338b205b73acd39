// stub_multicast.c: multicast objects, to which devices bind memory. Their bytes are addresses, not memory.
#include "stub_internal.h"

static CUresult create(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
	return handle && prop && prop->size ? vmm_holder(handle, prop->size) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *multicast, const CUmulticastObjectProp *prop)
	BODY(cuMulticastCreate, 0, LOCKED(create(multicast, prop)))

API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t offset,
				CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes, uint64_t flags)
	BODY(cuMulticastBindMem, 0,
	     ((void)flags, LOCKED(vmm_range(multicast, offset, bytes) ?: vmm_range(memory, memory_offset, bytes))))

API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address,
				 size_t bytes, uint64_t flags)
	BODY(cuMulticastBindAddr, 0, ((void)address, (void)flags, LOCKED(vmm_range(multicast, offset, bytes))))

API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, size_t bytes)
	BODY(cuMulticastUnbind, 0, LOCKED(check_device(device) ?: vmm_range(multicast, offset, bytes)))
