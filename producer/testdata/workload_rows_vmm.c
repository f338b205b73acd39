// workload_rows_vmm.c: rows of physical memory, its mappings, and multicast objects.
#include <unistd.h>

#include "workload_rows.h"

static CUmemGenericAllocationHandle create(uint64_t bytes)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = { .type = 1, .location = { CU_LOCATION_DEVICE, row.device } };
	OK(cuMemCreate(&h, bytes, &prop, 0));
	return h;
}

ROW_SEEN(cuMemCreate)
{
	CUmemGenericAllocationHandle h = STALE;
	uint64_t bytes = (4096 + value(1) % 4096) * BLOCK;
	CUmemAllocationProp prop = {
		.type = 1, .requestedHandleTypes = 1, .location = { CU_LOCATION_DEVICE, !row.device },
	};
	CALL(cuMemCreate(&h, bytes, &prop, 0));
	say("kind=memory op=create class=vmm ptr=%#llx bytes=%lu gpu=%d ", OUT(h), bytes, !row.device);
	if (!row.fail)
		OK(cuMemRelease(h));
}

ROW_SEEN(cuMemRelease)
{
	CUmemGenericAllocationHandle h = create(BLOCK);
	CALL(cuMemRelease(h));
	say("kind=memory op=release class=vmm ptr=%#llx ", h);
	if (row.fail)
		OK(cuMemRelease(h));
}

ROW_SEEN(cuMemAddressReserve)
{
	CUdeviceptr at = STALE;
	uint64_t bytes = (4096 + value(1) % 4096) * BLOCK;
	CALL(cuMemAddressReserve(&at, bytes, value(2), value(3), 0));
	say("kind=memory op=reserve class=vmm ptr=%#llx bytes=%lu ", OUT(at), bytes);
	if (!row.fail)
		OK(cuMemAddressFree(at, bytes));
}

ROW_SEEN(cuMemAddressFree)
{
	CUdeviceptr at;
	uint64_t bytes = (4096 + value(1) % 4096) * BLOCK;
	OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	CALL(cuMemAddressFree(at, bytes));
	say("kind=memory op=unreserve class=vmm ptr=%#llx bytes=%lu ", at, bytes);
	if (row.fail)
		OK(cuMemAddressFree(at, bytes));
}

struct mapped {
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle;
	uint64_t bytes;
};

static struct mapped reserve(void)
{
	struct mapped m = { .bytes = (64 + value(1) % 64) * BLOCK };
	OK(cuMemAddressReserve(&m.at, 256 * BLOCK, 0, 0, 0));
	m.handle = create(256 * BLOCK);
	m.at += BLOCK;
	return m;
}

static struct mapped map(void)
{
	struct mapped m = reserve();
	OK(cuMemMap(m.at, m.bytes, 3 * BLOCK, m.handle, 0));
	return m;
}

static void unmap(struct mapped *m, bool still)
{
	if (still)
		OK(cuMemUnmap(m->at, m->bytes));
	OK(cuMemRelease(m->handle));
	OK(cuMemAddressFree(m->at - BLOCK, 256 * BLOCK));
}

ROW_SEEN(cuMemMap)
{
	struct mapped m = reserve();
	CALL(cuMemMap(m.at, m.bytes, 3 * BLOCK, m.handle, 0));
	say("kind=memory op=map class=vmm ptr=%#llx bytes=%lu aux=%#llx ", m.at, m.bytes, m.handle);
	unmap(&m, !row.fail);
}

ROW_SEEN(cuMemUnmap)
{
	struct mapped m = map();
	CALL(cuMemUnmap(m.at, m.bytes));
	say("kind=memory op=unmap class=vmm ptr=%#llx bytes=%lu ", m.at, m.bytes);
	unmap(&m, row.fail);
}

ROW_SEEN(cuMemSetAccess)
{
	struct mapped m = map();
	CUmemAccessDesc access = { { CU_LOCATION_DEVICE, !row.device }, 3 };
	CALL(cuMemSetAccess(m.at, m.bytes, &access, 1));
	say("kind=memory op=access class=vmm ptr=%#llx bytes=%lu gpu=%d ", m.at, m.bytes, !row.device);
	unmap(&m, true);
}

ROW_SEEN(cuMemRetainAllocationHandle)
{
	struct mapped m = map();
	CUmemGenericAllocationHandle h = STALE;
	void *inside = (void *)(uintptr_t)(m.at + 0x12345);
	CALL(cuMemRetainAllocationHandle(&h, inside));
	say("kind=memory op=retain class=vmm ptr=%#llx aux=%p ", OUT(h), inside);
	if (!row.fail)
		OK(cuMemRelease(h));
	unmap(&m, true);
}

#define ROW_MAP_ARRAY(symbol)                                                                                          \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUarrayMapInfo list[3];                                                                                \
		for (int i = 0; i < 3; i++)                                                                            \
			list[i] = (CUarrayMapInfo){                                                                    \
				.resourceType = 1, .resource = PLACE(void *, 10 + i), .subresourceType = 1,            \
				.subresource = { value(20), value(21), value(22), value(23) },                         \
				.memOperationType = 1, .memHandle = value(30 + i), .offset = value(40 + i),            \
			};                                                                                             \
		CALL(symbol(list, 3, PLACE(CUstream, 2)));                                                             \
		say("kind=memory op=map_array class=vmm ptr=%#lx bytes=3 aux=%#lx ", value(10), value(30));            \
	}
ROW_MAP_ARRAY(cuMemMapArrayAsync)
ROW_MAP_ARRAY(cuMemMapArrayAsync_ptsz)

static void export_vmm(int type)
{
	CUmemGenericAllocationHandle h = create(BLOCK);
	union {
		CUtoken token;
		int fd;
	} out = { .token = { { 0 } } };
	CALL(cuMemExportToShareableHandle(&out, h, type, 0));
	say("kind=memory op=export class=vmm ptr=%#llx ", h);
	if (type == CU_HANDLE_FABRIC)
		say_token(&out.token);
	else
		say("fd=%d ", out.fd);
	if (type == CU_HANDLE_FD && !row.fail)
		close(out.fd);
	OK(cuMemRelease(h));
}

ROW_SEEN(cuMemExportToShareableHandle)
{
	int filler[6];
	for (int i = 0; i < 6; i++) // so that the next free descriptor is not a small number
		filler[i] = (int)must("dup", dup(STDIN_FILENO));
	export_vmm(CU_HANDLE_FD);
	for (int i = 0; i < 6; i++)
		close(filler[i]);
}

ROW_VARIANT(cuMemExportToShareableHandle, fabric)
{
	export_vmm(CU_HANDLE_FABRIC);
}

ROW_SEEN(cuMemImportFromShareableHandle)
{
	CUmemGenericAllocationHandle h = create(BLOCK), opened = STALE;
	int fd;
	OK(cuMemExportToShareableHandle(&fd, h, CU_HANDLE_FD, 0));
	fd = high_descriptor(fd);
	CALL(cuMemImportFromShareableHandle(&opened, (void *)(intptr_t)fd, CU_HANDLE_FD));
	say("kind=memory op=open class=vmm ptr=%#llx fd=%d ", OUT(opened), fd);
	close(fd);
	if (!row.fail)
		OK(cuMemRelease(opened));
	OK(cuMemRelease(h));
}

ROW_VARIANT(cuMemImportFromShareableHandle, fabric)
{
	CUmemGenericAllocationHandle h = create(BLOCK), opened = STALE;
	CUtoken token;
	OK(cuMemExportToShareableHandle(&token, h, CU_HANDLE_FABRIC, 0));
	CALL(cuMemImportFromShareableHandle(&opened, &token, CU_HANDLE_FABRIC));
	say("kind=memory op=open class=vmm ptr=%#llx ", OUT(opened));
	say_token(&token);
	OK(cuMemRelease(opened));
	OK(cuMemRelease(h));
}

static CUmemGenericAllocationHandle multicast(void)
{
	CUmemGenericAllocationHandle mc;
	OK(cuMulticastCreate(&mc, &(CUmulticastObjectProp){ 2, 64 * BLOCK, 1, 0 }));
	return mc;
}

ROW_SEEN(cuMulticastCreate)
{
	CUmemGenericAllocationHandle mc = STALE;
	CUmulticastObjectProp prop = { 2, (4096 + value(1) % 4096) * BLOCK, 1, 0 };
	CALL(cuMulticastCreate(&mc, &prop));
	say("kind=memory op=create class=multicast ptr=%#llx size=%zu gpu=none ", OUT(mc), prop.size);
	if (!row.fail)
		OK(cuMemRelease(mc));
}

ROW_SEEN(cuMulticastBindMem)
{
	CUmemGenericAllocationHandle mc = multicast(), h = create(64 * BLOCK);
	CALL(cuMulticastBindMem(mc, BLOCK, h, 2 * BLOCK, 3 * BLOCK, 0));
	say("kind=memory op=bind class=multicast ptr=%#llx bytes=%llu aux=%#llx ", mc, 3 * BLOCK, h);
	OK(cuMemRelease(h));
	OK(cuMemRelease(mc));
}

ROW_SEEN(cuMulticastBindAddr)
{
	CUmemGenericAllocationHandle mc = multicast();
	CALL(cuMulticastBindAddr(mc, BLOCK, value(1), 5 * BLOCK, 0));
	say("kind=memory op=bind class=multicast ptr=%#llx bytes=%llu aux=%#lx ", mc, 5 * BLOCK, value(1));
	OK(cuMemRelease(mc));
}

ROW_SEEN(cuMulticastUnbind)
{
	CUmemGenericAllocationHandle mc = multicast();
	CALL(cuMulticastUnbind(mc, !row.device, BLOCK, 7 * BLOCK));
	say("kind=memory op=unbind class=multicast ptr=%#llx bytes=%llu gpu=%d ", mc, 7 * BLOCK, !row.device);
	OK(cuMemRelease(mc));
}
