// workload_rows_sync.c: rows of waits, CUDA events, CUDA streams, contexts and devices.
#include <string.h>
#include <unistd.h>

#include "workload_rows.h"

#define SAY_SYNC(operation) say("kind=sync op=" operation " ")

ROW_SEEN(cuCtxSynchronize)
{
	CALL(cuCtxSynchronize());
	SAY_SYNC("sync");
	say("event=any ");
}

#define ROW_HANDLE(symbol, type, operation)                                                                            \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(PLACE(type, 1)));                                                                          \
		SAY_SYNC(operation);                                                                                   \
		say("event=%#lx ", value(1));                                                                          \
	}
ROW_HANDLE(cuCtxSynchronize_v2, CUcontext, "sync")
ROW_HANDLE(cuEventSynchronize, CUevent, "sync")
ROW_HANDLE(cuEventQuery, CUevent, "query")

#define ROW_STREAM(symbol, operation)                                                                                  \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(PLACE(CUstream, 1)));                                                                      \
		SAY_SYNC(operation);                                                                                   \
		say("stream=%#lx ", value(1));                                                                         \
	}
ROW_STREAM(cuStreamSynchronize, "sync")
ROW_STREAM(cuStreamSynchronize_ptsz, "sync")
ROW_STREAM(cuStreamQuery, "query")
ROW_STREAM(cuStreamQuery_ptsz, "query")
ROW_STREAM(cuStreamDestroy_v2, "stream_destroy")

#define ROW_RECORD(symbol, ...)                                                                                        \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(PLACE(CUevent, 1), PLACE(CUstream, 2) __VA_OPT__(, ) __VA_ARGS__));                        \
		SAY_SYNC("event_record");                                                                              \
		say("event=%#lx stream=%#lx ", value(1), value(2));                                                    \
	}
ROW_RECORD(cuEventRecord)
ROW_RECORD(cuEventRecord_ptsz)
ROW_RECORD(cuEventRecordWithFlags, 1)
ROW_RECORD(cuEventRecordWithFlags_ptsz, 1)

#define ROW_WAIT(symbol)                                                                                               \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(PLACE(CUstream, 2), PLACE(CUevent, 1), (unsigned)value(3)));                               \
		SAY_SYNC("wait_event");                                                                                \
		say("event=%#lx stream=%#lx ", value(1), value(2));                                                    \
	}
ROW_WAIT(cuStreamWaitEvent)
ROW_WAIT(cuStreamWaitEvent_ptsz)

// A float is printed as its bits.
#define ROW_ELAPSED(symbol)                                                                                            \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUevent start, end;                                                                                    \
		float ms = 0;                                                                                          \
		uint32_t bits;                                                                                         \
		OK(cuEventCreate(&start, 0));                                                                          \
		OK(cuEventCreate(&end, 0));                                                                            \
		OK(cuEventRecord(start, NULL));                                                                        \
		usleep(3000);                                                                                          \
		OK(cuEventRecord(end, NULL));                                                                          \
		CALL(symbol(&ms, start, end));                                                                         \
		memcpy(&bits, &ms, sizeof bits);                                                                       \
		SAY_SYNC("elapsed");                                                                                   \
		say("event=%p until_event=%p ms_bits=%#x ", (void *)start, (void *)end, bits);                         \
		OK(cuEventDestroy_v2(start));                                                                          \
		OK(cuEventDestroy_v2(end));                                                                            \
	}
ROW_ELAPSED(cuEventElapsedTime)
ROW_ELAPSED(cuEventElapsedTime_v2)

#define ROW_STREAM_CREATE(symbol, ...)                                                                                 \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUstream s = (CUstream)STALE;                                                                          \
		CALL(symbol(&s, __VA_ARGS__));                                                                         \
		SAY_SYNC("stream_create");                                                                             \
		say("stream=%#llx ", OUT(s));                                                                          \
		if (!row.fail)                                                                                         \
			OK(cuStreamDestroy_v2(s));                                                                     \
	}
ROW_STREAM_CREATE(cuStreamCreate, 1)
ROW_STREAM_CREATE(cuStreamCreateWithPriority, 1, -5)

// Context events contain their own GPU. The current context does not matter.
#define SAY_CONTEXT(operation, handle, ordinal)                                                                        \
	say("kind=memory op=" operation " class= ptr=%#llx gpu=%d in_context=any ", handle, ordinal)

static unsigned long long word(const void *handle)
{
	return (uintptr_t)handle;
}

ROW_SEEN(cuDevicePrimaryCtxRetain)
{
	CUcontext c = (CUcontext)STALE;
	CALL(cuDevicePrimaryCtxRetain(&c, !row.device));
	SAY_CONTEXT("context_retain", OUT(c), !row.device);
	if (!row.fail)
		OK(cuDevicePrimaryCtxRelease_v2(!row.device));
}

#define ROW_RELEASE(symbol)                                                                                            \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUcontext c;                                                                                           \
		OK(cuDevicePrimaryCtxRetain(&c, !row.device));                                                         \
		CALL(symbol(!row.device));                                                                             \
		SAY_CONTEXT("context_release", word(c), !row.device);                                                  \
		if (row.fail)                                                                                          \
			OK(symbol(!row.device));                                                                       \
	}
ROW_RELEASE(cuDevicePrimaryCtxRelease)
ROW_RELEASE(cuDevicePrimaryCtxRelease_v2)

// The memory that ends with a context, and the memory that stays, as the stub counts it.
struct holdings {
	CUdeviceptr pooled;
	uint64_t kept, host;
};

static struct holdings hold(void)
{
	struct holdings h = { .kept = stubTruth()->live_bytes, .host = stubTruth()->host_live_bytes };
	CUdeviceptr d;
	CUarray a;
	void *p;
	OK(cuMemAllocAsync(&h.pooled, 3 * MB, NULL));
	allocate(5 * MB);
	OK(cuMemAllocManaged(&d, 7 * MB, 1));
	OK(cuArrayCreate_v2(&a, &(CUDA_ARRAY_DESCRIPTOR){ 1024, 1024, 1, 1 }));
	OK(cuMemHostAlloc(&p, 11 * MB, 0));
	return h;
}

static void check_ended(const struct holdings *h)
{
	if (stubTruth()->live_bytes != h->kept + 3 * MB || stubTruth()->host_live_bytes != h->host)
		fail("a context that ended left %lu bytes and %lu of the host", stubTruth()->live_bytes - h->kept,
		     stubTruth()->host_live_bytes - h->host);
	OK(cuMemFreeAsync(h->pooled, NULL));
}

#define ROW_RESET(symbol)                                                                                              \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		struct holdings h;                                                                                     \
		OK(cuCtxSetCurrent(row_context(!row.device)));                                                         \
		h = hold();                                                                                            \
		OK(cuCtxSetCurrent(row.context));                                                                      \
		CALL(symbol(!row.device));                                                                             \
		SAY_CONTEXT("context_reset", word(row_context(!row.device)), !row.device);                             \
		if (row.fail)                                                                                          \
			OK(cuDevicePrimaryCtxReset_v2(!row.device));                                                   \
		check_ended(&h);                                                                                       \
	}
ROW_RESET(cuDevicePrimaryCtxReset)
ROW_RESET(cuDevicePrimaryCtxReset_v2)

#define ROW_CREATE(symbol, ...)                                                                                        \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CUcontext c = (CUcontext)STALE;                                                                        \
		CALL(symbol(&c, __VA_ARGS__, !row.device));                                                            \
		SAY_CONTEXT("context_create", OUT(c), !row.device);                                                    \
		if (!row.fail)                                                                                         \
			OK(cuCtxDestroy_v2(c));                                                                        \
	}
ROW_CREATE(cuCtxCreate_v2, 0x11)
ROW_CREATE(cuCtxCreate_v3, PLACE(void *, 1), 0x22, 0x11)
ROW_CREATE(cuCtxCreate_v4, PLACE(void *, 1), 0x11)

ROW_SEEN(cuCtxDestroy_v2)
{
	CUcontext c;
	OK(cuCtxCreate_v2(&c, 0, !row.device));
	struct holdings h = hold();
	CALL(cuCtxDestroy_v2(c));
	SAY_CONTEXT("context_destroy", word(c), !row.device);
	if (row.fail)
		OK(cuCtxDestroy_v2(c));
	check_ended(&h);
}

static CUgreenCtx green(int device)
{
	CUgreenCtx g;
	OK(cuGreenCtxCreate(&g, PLACE(CUdevResourceDesc, 50), device, 1));
	return g;
}

ROW_SEEN(cuGreenCtxCreate)
{
	CUgreenCtx g = (CUgreenCtx)STALE;
	CALL(cuGreenCtxCreate(&g, PLACE(CUdevResourceDesc, 1), !row.device, 1));
	SAY_CONTEXT("context_create", OUT(g), !row.device);
	if (!row.fail)
		OK(cuGreenCtxDestroy(g));
}

ROW_SEEN(cuGreenCtxDestroy)
{
	CUgreenCtx g = green(!row.device);
	CALL(cuGreenCtxDestroy(g));
	SAY_CONTEXT("context_destroy", word(g), !row.device);
	if (row.fail)
		OK(cuGreenCtxDestroy(g));
}

ROW_SEEN(cuCtxFromGreenCtx)
{
	CUgreenCtx g = green(!row.device);
	CUcontext c = (CUcontext)STALE;
	CALL(cuCtxFromGreenCtx(&c, g));
	SAY_CONTEXT("context_create", OUT(c), !row.device);
	say("aux=%p ", (void *)g);
	OK(cuGreenCtxDestroy(g));
}

// current allocates to show the current context of the thread.
static void current(CUcontext c, int device)
{
	CUdeviceptr d;
	say("kind= op=context later_context=%p later_gpu=%d ", (void *)c, device);
	LATER("alloc", cuMemAlloc_v2(&d, 4 * KB));
	OK(cuMemFree_v2(d));
}

ROW(cuCtxSetCurrent)
{
	CALL(cuCtxSetCurrent(row_context(!row.device)));
	current(row_context(!row.device), !row.device);
}

ROW(cuCtxPushCurrent_v2)
{
	CALL(cuCtxPushCurrent_v2(row_context(!row.device)));
	current(row_context(!row.device), !row.device);
}

ROW(cuCtxPopCurrent_v2)
{
	CUcontext popped;
	OK(cuCtxPushCurrent_v2(row_context(!row.device)));
	CALL(cuCtxPopCurrent_v2(&popped));
	current(row.context, row.device);
}

static void device(void)
{
	CUdeviceptr d;
	say("kind= op=device later_context=%p later_gpu=%d ", (void *)row.context, row.device);
	LATER("alloc", cuMemAlloc_v2(&d, 4 * KB));
	OK(cuMemFree_v2(d));
}

ROW(cuDeviceGet)
{
	CUdevice d;
	CALL(cuDeviceGet(&d, row.device));
	device();
}

#define ROW_UUID(symbol)                                                                                               \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUuuid u;                                                                                              \
		CALL(symbol(&u, row.device));                                                                          \
		say("uuid=GPU-");                                                                                      \
		for (int i = 0; i < 16; i++)                                                                           \
			say("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u.bytes[i]);                   \
		say(" ");                                                                                              \
		device();                                                                                              \
	}
ROW_UUID(cuDeviceGetUuid)
ROW_UUID(cuDeviceGetUuid_v2)

ROW(cuDeviceTotalMem_v2)
{
	size_t bytes;
	CALL(cuDeviceTotalMem_v2(&bytes, row.device));
	say("size=%zu ", bytes);
	device();
}

#define ROW_TEXT(symbol)                                                                                               \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		char text[64];                                                                                         \
		CALL(symbol(text, sizeof text, row.device));                                                           \
		device();                                                                                              \
	}
ROW_TEXT(cuDeviceGetName)
ROW_TEXT(cuDeviceGetPCIBusId)
