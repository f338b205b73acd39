// workload_rows_memory.c: rows of memory.
#include <stdio.h>
#include <unistd.h>

#include "workload_rows.h"

#define SAY_ALLOC(class) say("kind=memory op=alloc class=" class " ptr=%#llx ", OUT(p))

ROW_SEEN(cuMemAlloc_v2)
{
	CUdeviceptr p = STALE;
	CALL(cuMemAlloc_v2(&p, amount(1)));
	SAY_ALLOC("device");
	say("bytes=%lu ", amount(1));
	if (!row.fail)
		OK(cuMemFree_v2(p));
}

ROW_SEEN(cuMemAllocManaged)
{
	CUdeviceptr p = STALE;
	CALL(cuMemAllocManaged(&p, amount(1), 1));
	SAY_ALLOC("managed");
	say("bytes=%lu ", amount(1));
	if (!row.fail)
		OK(cuMemFree_v2(p));
}

ROW_SEEN(cuMemAllocPitch_v2)
{
	CUdeviceptr p = STALE;
	size_t pitch = 3, width = 0x12345, height = 0x6789;
	CALL(cuMemAllocPitch_v2(&p, &pitch, width, height, 16));
	SAY_ALLOC("device");
	say("pitch=%zu width=%zu height=%zu ", pitch, width, height);
	if (!row.fail)
		OK(cuMemFree_v2(p));
}

#define ROW_ALLOC_ASYNC(symbol)                                                                                        \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUdeviceptr p = STALE;                                                                                 \
		CALL(symbol(&p, amount(1), PLACE(CUstream, 2)));                                                       \
		SAY_ALLOC("pool");                                                                                     \
		say("bytes=%lu stream=%#lx ", amount(1), value(2));                                                    \
		if (!row.fail)                                                                                         \
			OK(cuMemFree_v2(p));                                                                           \
	}
ROW_ALLOC_ASYNC(cuMemAllocAsync)
ROW_ALLOC_ASYNC(cuMemAllocAsync_ptsz)

ROW_SEEN(cuMemFree_v2)
{
	CUdeviceptr p;
	OK(cuMemAllocManaged(&p, amount(1), 1));
	CALL(cuMemFree_v2(p));
	say("kind=memory op=free class=device ptr=%#llx ", p);
	if (row.fail)
		OK(cuMemFreeAsync(p, NULL));
}

#define ROW_FREE_ASYNC(symbol)                                                                                         \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUdeviceptr p = allocate(amount(1));                                                                   \
		CALL(symbol(p, PLACE(CUstream, 2)));                                                                   \
		say("kind=memory op=free class=pool ptr=%#llx stream=%#lx ", p, value(2));                             \
		if (row.fail)                                                                                          \
			OK(cuMemFree_v2(p));                                                                           \
	}
ROW_FREE_ASYNC(cuMemFreeAsync)
ROW_FREE_ASYNC(cuMemFreeAsync_ptsz)

ROW_SEEN(cuMemHostAlloc)
{
	void *p = (void *)STALE;
	CALL(cuMemHostAlloc(&p, amount(1), (unsigned)value(2)));
	SAY_ALLOC("pinned");
	say("bytes=%lu ", amount(1));
	if (!row.fail)
		OK(cuMemFreeHost(p));
}

ROW_SEEN(cuMemAllocHost_v2)
{
	void *p = (void *)STALE;
	CALL(cuMemAllocHost_v2(&p, amount(1)));
	SAY_ALLOC("pinned");
	say("bytes=%lu ", amount(1));
	if (!row.fail)
		OK(cuMemFreeHost(p));
}

ROW_SEEN(cuMemFreeHost)
{
	void *p;
	OK(cuMemHostAlloc(&p, amount(1), 0));
	CALL(cuMemFreeHost(p));
	say("kind=memory op=free class=pinned ptr=%p ", p);
	if (row.fail)
		OK(cuMemFreeHost(p));
}

ROW_SEEN(cuMemHostRegister_v2)
{
	void *p = PLACE(void *, 1);
	CALL(cuMemHostRegister_v2(p, amount(2), (unsigned)value(3)));
	say("kind=memory op=alloc class=registered ptr=%p bytes=%lu ", p, amount(2));
	if (!row.fail)
		OK(cuMemHostUnregister(p));
}

ROW_SEEN(cuMemHostUnregister)
{
	void *p = PLACE(void *, 1);
	OK(cuMemHostRegister_v2(p, amount(2), 0));
	CALL(cuMemHostUnregister(p));
	say("kind=memory op=free class=registered ptr=%p ", p);
	if (row.fail)
		OK(cuMemHostUnregister(p));
}

static CUDA_ARRAY3D_DESCRIPTOR descriptor(int format, size_t width, size_t height, size_t depth, unsigned channels,
					  unsigned flags)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){ width, height, depth, format, channels, flags };
}

static void say_array(const char *op, const void *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	say("kind=memory op=%s class=array ptr=%#llx width=%zu height=%zu depth=%zu format=%d channels=%u flags=%u "
	    "levels=%u ",
	    op, OUT(array), d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags, levels);
}

static void array_2d(int format, size_t width, size_t height, unsigned channels)
{
	CUarray a = (CUarray)STALE;
	CUDA_ARRAY_DESCRIPTOR d = { width, height, format, channels };
	CUDA_ARRAY3D_DESCRIPTOR same = descriptor(format, width, height, 0, channels, 0);
	CALL(cuArrayCreate_v2(&a, &d));
	say_array("alloc", a, &same, 1);
	if (!row.fail)
		OK(cuArrayDestroy(a));
}

ROW_SEEN(cuArrayCreate_v2)
{
	array_2d(0x20, 12345, 6789, 4);
}

ROW_VARIANT(cuArrayCreate_v2, line)
{
	array_2d(0x09, 123456, 0, 2);
}

static void array_3d(CUDA_ARRAY3D_DESCRIPTOR d)
{
	CUarray a = (CUarray)STALE;
	CALL(cuArray3DCreate_v2(&a, &d));
	say_array("alloc", a, &d, 1);
	if (!row.fail)
		OK(cuArrayDestroy(a));
}

ROW_SEEN(cuArray3DCreate_v2)
{
	array_3d(descriptor(0x10, 1235, 679, 87, 2, 2));
}

ROW_VARIANT(cuArray3DCreate_v2, layered)
{
	array_3d(descriptor(0x08, 4321, 0, 13, 4, CU_ARRAY_LAYERED));
}

ROW_VARIANT(cuArray3DCreate_v2, sparse)
{
	array_3d(descriptor(0x03, 4096, 2048, 0, 1, CU_ARRAY_SPARSE));
}

ROW_VARIANT(cuArray3DCreate_v2, deferred)
{
	array_3d(descriptor(0x0a, 4096, 1024, 3, 1, CU_ARRAY_DEFERRED));
}

static void mipmap(CUDA_ARRAY3D_DESCRIPTOR d, unsigned levels)
{
	CUmipmappedArray a = (CUmipmappedArray)STALE;
	CALL(cuMipmappedArrayCreate(&a, &d, levels));
	say_array("alloc", a, &d, levels);
	if (!row.fail)
		OK(cuMipmappedArrayDestroy(a));
}

ROW_SEEN(cuMipmappedArrayCreate)
{
	mipmap(descriptor(0x20, 1023, 511, 63, 4, 0), 10);
}

ROW_VARIANT(cuMipmappedArrayCreate, layered)
{
	mipmap(descriptor(0x01, 2047, 1023, 6, 2, CU_ARRAY_LAYERED), 11);
}

ROW_VARIANT(cuMipmappedArrayCreate, sparse)
{
	mipmap(descriptor(0x02, 2048, 1024, 0, 1, CU_ARRAY_SPARSE), 3);
}

ROW_SEEN(cuArrayDestroy)
{
	CUarray a;
	OK(cuArrayCreate_v2(&a, &(CUDA_ARRAY_DESCRIPTOR){ 64, 32, 1, 1 }));
	CALL(cuArrayDestroy(a));
	say("kind=memory op=free class=array ptr=%p ", (void *)a);
	if (row.fail)
		OK(cuArrayDestroy(a));
}

ROW_SEEN(cuMipmappedArrayDestroy)
{
	CUmipmappedArray a;
	CUDA_ARRAY3D_DESCRIPTOR d = descriptor(1, 64, 32, 0, 1, 0);
	OK(cuMipmappedArrayCreate(&a, &d, 2));
	CALL(cuMipmappedArrayDestroy(a));
	say("kind=memory op=free class=array ptr=%p ", (void *)a);
	if (row.fail)
		OK(cuMipmappedArrayDestroy(a));
}

#define ROW_PREFETCH(symbol)                                                                                           \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(value(1), value(2), !row.device, PLACE(CUstream, 3)));                                     \
		say("kind=memory op=prefetch class=managed ptr=%#lx bytes=%lu stream=%#lx gpu=%d ", value(1), value(2), \
		    value(3), !row.device);                                                                            \
	}                                                                                                              \
	ROW_VARIANT(symbol, host)                                                                                      \
	{                                                                                                              \
		CALL(symbol(value(1), value(2), -1, PLACE(CUstream, 3)));                                              \
		say("kind=memory op=prefetch class=managed ptr=%#lx bytes=%lu stream=%#lx gpu=none ", value(1),        \
		    value(2), value(3));                                                                               \
	}
ROW_PREFETCH(cuMemPrefetchAsync)
ROW_PREFETCH(cuMemPrefetchAsync_ptsz)

#define ROW_PREFETCH_TO(symbol)                                                                                        \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUmemLocation to = { CU_LOCATION_DEVICE, !row.device };                                                \
		CALL(symbol(value(1), value(2), to, (unsigned)value(4), PLACE(CUstream, 3)));                          \
		say("kind=memory op=prefetch class=managed ptr=%#lx bytes=%lu stream=%#lx gpu=%d ", value(1), value(2), \
		    value(3), !row.device);                                                                            \
	}                                                                                                              \
	ROW_VARIANT(symbol, host)                                                                                      \
	{                                                                                                              \
		CUmemLocation to = { CU_LOCATION_HOST, 0 };                                                            \
		CALL(symbol(value(1), value(2), to, (unsigned)value(4), PLACE(CUstream, 3)));                          \
		say("kind=memory op=prefetch class=managed ptr=%#lx bytes=%lu stream=%#lx gpu=none ", value(1),        \
		    value(2), value(3));                                                                               \
	}
ROW_PREFETCH_TO(cuMemPrefetchAsync_v2)
ROW_PREFETCH_TO(cuMemPrefetchAsync_v2_ptsz)

ROW_SEEN(cuMemGetInfo_v2)
{
	size_t available = STALE, total = STALE;
	CUdeviceptr p = allocate(amount(1));
	CALL(cuMemGetInfo_v2(&available, &total));
	say("kind=memory op=mem_info class= free=%zu total=%zu ", available, total);
	OK(cuMemFree_v2(p));
}
