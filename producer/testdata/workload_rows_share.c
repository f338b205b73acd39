// workload_rows_share.c: rows of pools, and of memory that other processes open.
#include <unistd.h>

#include "workload_rows.h"

static CUmemPoolProps pool_props(int device)
{
	return (CUmemPoolProps){
		.allocType = 1, .handleTypes = 1, .location = { CU_LOCATION_DEVICE, device },
		.maxSize = amount(9), .usage = 0x7777,
	};
}

static CUmemoryPool pool(void)
{
	CUmemoryPool p;
	CUmemPoolProps props = pool_props(row.device);
	OK(cuMemPoolCreate(&p, &props));
	return p;
}

ROW_SEEN(cuMemPoolCreate)
{
	CUmemoryPool p = (CUmemoryPool)STALE;
	CUmemPoolProps props = pool_props(!row.device);
	CALL(cuMemPoolCreate(&p, &props));
	say("kind=memory op=pool_create class=pool ptr=%#llx max=%zu gpu=%d ", OUT(p), props.maxSize, !row.device);
	if (!row.fail)
		OK(cuMemPoolDestroy(p));
}

ROW_SEEN(cuMemPoolDestroy)
{
	CUmemoryPool p = pool();
	CUdeviceptr d;
	OK(cuMemAllocFromPoolAsync(&d, 3 * BLOCK, p, NULL));
	uint64_t before = stubTruth()->live_bytes;
	CALL(cuMemPoolDestroy(p));
	say("kind=memory op=pool_destroy class=pool ptr=%p ", (void *)p);
	if (stubTruth()->live_bytes != before)
		fail("destroying a pool freed its allocations");
	OK(cuMemFreeAsync(d, NULL));
	if (row.fail)
		OK(cuMemPoolDestroy(p));
}

ROW_SEEN(cuMemPoolTrimTo)
{
	CUmemoryPool p = pool();
	CALL(cuMemPoolTrimTo(p, value(1)));
	say("kind=memory op=pool_trim class=pool ptr=%p bytes=%lu ", (void *)p, value(1));
	OK(cuMemPoolDestroy(p));
}

static void pool_attribute(int attribute)
{
	CUmemoryPool p = pool();
	CUdeviceptr d;
	uint64_t answer = STALE, bytes = 0x100000000 + value(2) % 0x10000000;
	CUmemPoolProps props = pool_props(row.device);
	if (bytes > props.maxSize)
		bytes = props.maxSize;
	OK(cuMemAllocFromPoolAsync(&d, bytes, p, NULL));
	CALL(cuMemPoolGetAttribute(p, attribute, &answer));
	say("kind=memory op=pool_info class=pool ptr=%p aux=%d value=%lu ", (void *)p, attribute, answer);
	OK(cuMemFreeAsync(d, NULL));
	OK(cuMemPoolDestroy(p));
}

ROW_SEEN(cuMemPoolGetAttribute)
{
	pool_attribute(CU_POOL_RESERVED_CURRENT);
}

ROW_VARIANT(cuMemPoolGetAttribute, used)
{
	pool_attribute(CU_POOL_USED_HIGH);
}

#define ROW_FROM_POOL(symbol)                                                                                          \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUmemoryPool p = pool();                                                                               \
		CUdeviceptr d = STALE;                                                                                 \
		CALL(symbol(&d, amount(9) - 12345, p, PLACE(CUstream, 2)));                                            \
		say("kind=memory op=alloc class=pool ptr=%#llx bytes=%lu pool=%p stream=%#lx ", OUT(d),                \
		    amount(9) - 12345, (void *)p, value(2));                                                           \
		if (!row.fail)                                                                                         \
			OK(cuMemFreeAsync(d, NULL));                                                                   \
		OK(cuMemPoolDestroy(p));                                                                               \
	}
ROW_FROM_POOL(cuMemAllocFromPoolAsync)
ROW_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

ROW_SEEN(cuMemPoolExportPointer)
{
	CUmemPoolPtrExportData token = { { 0 } };
	CUdeviceptr d;
	OK(cuMemAllocAsync(&d, BLOCK, NULL));
	CALL(cuMemPoolExportPointer(&token, d));
	say("kind=memory op=export class=pool ptr=%#llx ", d);
	say_token(&token);
	OK(cuMemFreeAsync(d, NULL));
}

static CUmemoryPool imported(void)
{
	CUmemoryPool p = pool(), in;
	int fd;
	OK(cuMemPoolExportToShareableHandle(&fd, p, CU_HANDLE_FD, 0));
	OK(cuMemPoolImportFromShareableHandle(&in, (void *)(intptr_t)fd, CU_HANDLE_FD, 0));
	OK(cuMemPoolDestroy(p));
	close(fd);
	return in;
}

ROW_SEEN(cuMemPoolImportPointer)
{
	CUmemPoolPtrExportData token;
	CUmemoryPool p = imported();
	CUdeviceptr d, opened = STALE;
	OK(cuMemAllocAsync(&d, BLOCK, NULL));
	OK(cuMemPoolExportPointer(&token, d));
	CALL(cuMemPoolImportPointer(&opened, p, &token));
	say("kind=memory op=open class=ipc ptr=%#llx pool=%p ", OUT(opened), (void *)p);
	say_token(&token);
	if (!row.fail)
		OK(cuMemFreeAsync(opened, NULL));
	OK(cuMemFreeAsync(d, NULL));
	OK(cuMemPoolDestroy(p));
}

ROW_SEEN(cuMemPoolExportToShareableHandle)
{
	CUmemoryPool p = pool();
	int fd = -1;
	CALL(cuMemPoolExportToShareableHandle(&fd, p, CU_HANDLE_FD, 0));
	say("kind=memory op=export class=pool ptr=%p fd=%d ", (void *)p, fd);
	if (!row.fail)
		close(fd);
	OK(cuMemPoolDestroy(p));
}

ROW_SEEN(cuMemPoolImportFromShareableHandle)
{
	CUmemoryPool p = pool(), in = (CUmemoryPool)STALE;
	int fd;
	OK(cuMemPoolExportToShareableHandle(&fd, p, CU_HANDLE_FD, 0));
	fd = high_descriptor(fd);
	CALL(cuMemPoolImportFromShareableHandle(&in, (void *)(intptr_t)fd, CU_HANDLE_FD, 0));
	say("kind=memory op=pool_create class=ipc ptr=%#llx fd=%d ", OUT(in), fd);
	close(fd);
	if (!row.fail)
		OK(cuMemPoolDestroy(in));
	OK(cuMemPoolDestroy(p));
}

ROW_SEEN(cuIpcGetMemHandle)
{
	CUipcMemHandle token = { { 0 } };
	CUdeviceptr d = allocate(amount(1));
	CALL(cuIpcGetMemHandle(&token, d));
	say("kind=memory op=export class=device ptr=%#llx ", d);
	say_token(&token);
	OK(cuMemFree_v2(d));
}

#define ROW_IPC_OPEN(symbol)                                                                                           \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUipcMemHandle token;                                                                                  \
		CUdeviceptr d = allocate(amount(1)), opened = STALE;                                                   \
		OK(cuIpcGetMemHandle(&token, d));                                                                      \
		CALL(symbol(&opened, token, (unsigned)value(2)));                                                      \
		say("kind=memory op=open class=ipc ptr=%#llx ", OUT(opened));                                          \
		say_token(&token);                                                                                     \
		if (!row.fail)                                                                                         \
			OK(cuIpcCloseMemHandle(opened));                                                               \
		OK(cuMemFree_v2(d));                                                                                   \
	}
ROW_IPC_OPEN(cuIpcOpenMemHandle)
ROW_IPC_OPEN(cuIpcOpenMemHandle_v2)

ROW_SEEN(cuIpcCloseMemHandle)
{
	CUipcMemHandle token;
	CUdeviceptr d = allocate(amount(1)), opened;
	OK(cuIpcGetMemHandle(&token, d));
	OK(cuIpcOpenMemHandle_v2(&opened, token, 1));
	CALL(cuIpcCloseMemHandle(opened));
	say("kind=memory op=close class=ipc ptr=%#llx ", opened);
	if (row.fail)
		OK(cuIpcCloseMemHandle(opened));
	OK(cuMemFree_v2(d));
}

static CUDA_EXTERNAL_MEMORY_HANDLE_DESC external_desc(void)
{
	return (CUDA_EXTERNAL_MEMORY_HANDLE_DESC){
		.type = 1, .handle.fd = 4321 + row.number, .size = value(1), .flags = (unsigned)value(2),
	};
}

static CUexternalMemory external(void)
{
	CUexternalMemory m;
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = external_desc();
	OK(cuImportExternalMemory(&m, &desc));
	return m;
}

ROW_SEEN(cuImportExternalMemory)
{
	CUexternalMemory m = (CUexternalMemory)STALE;
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = external_desc();
	CALL(cuImportExternalMemory(&m, &desc));
	say("kind=memory op=open class=external ptr=%#llx size=%llu fd=%d ", OUT(m), desc.size, desc.handle.fd);
	if (!row.fail)
		OK(cuDestroyExternalMemory(m));
}

ROW_SEEN(cuExternalMemoryGetMappedBuffer)
{
	CUexternalMemory m = external();
	CUdeviceptr d = STALE;
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc = { .offset = value(3), .size = amount(4) };
	CALL(cuExternalMemoryGetMappedBuffer(&d, m, &desc));
	say("kind=memory op=open class=external ptr=%#llx size=%llu aux=%p ", OUT(d), desc.size, (void *)m);
	if (!row.fail)
		OK(cuMemFree_v2(d));
	OK(cuDestroyExternalMemory(m));
}

ROW_SEEN(cuExternalMemoryGetMappedMipmappedArray)
{
	CUexternalMemory m = external();
	CUmipmappedArray a = (CUmipmappedArray)STALE;
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc = { .offset = value(3), .arrayDesc = { 64, 64, 0, 1, 1, 0 } };
	CALL(cuExternalMemoryGetMappedMipmappedArray(&a, m, &desc));
	say("kind=memory op=open class=external ptr=%#llx aux=%p ", OUT(a), (void *)m);
	if (!row.fail)
		OK(cuMipmappedArrayDestroy(a));
	OK(cuDestroyExternalMemory(m));
}

ROW_SEEN(cuDestroyExternalMemory)
{
	CUexternalMemory m = external();
	CALL(cuDestroyExternalMemory(m));
	say("kind=memory op=close class=external ptr=%p ", (void *)m);
	if (row.fail)
		OK(cuDestroyExternalMemory(m));
}
