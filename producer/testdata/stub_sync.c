// stub_sync.c: CUDA streams, CUDA events, and waits, which return at once.
#include <pthread.h>
#include <string.h>

#include "stub_internal.h"

enum { EVENTS_N = 1024, STREAMS_N = 1024 };

// guarded by mu
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool used;
	uint64_t recorded; // monotonic ns; 0 = never
} events[EVENTS_N];
static struct {
	uintptr_t handle; // 0 = unused
	int device;
} streams[STREAMS_N];

static uintptr_t handle_of(int place)
{
	return 0x5586e7000080 + 0x90 * (uintptr_t)place;
}

static int place_of(CUevent event)
{
	uintptr_t at = (uintptr_t)event - handle_of(0);
	return at < 0x90 * EVENTS_N && at % 0x90 == 0 ? (int)(at / 0x90) : -1;
}

static CUresult create_event(CUevent *event)
{
	for (int i = 0; event && i < EVENTS_N; i++) {
		if (events[i].used)
			continue;
		events[i].used = true;
		events[i].recorded = 0;
		*event = (CUevent)handle_of(i);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult destroy_event(CUevent event)
{
	int i = place_of(event);
	if (i < 0 || !events[i].used)
		return CUDA_ERROR_INVALID_HANDLE;
	events[i].used = false;
	return CUDA_SUCCESS;
}

// An unknown CUDA event counts as completed, because the probes need only a handle.
static CUresult record(CUevent event, CUstream stream, bool per_thread)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	int i = place_of(event);
	if (i >= 0)
		events[i].recorded = boot_ns();
	capture_event(event, stream, per_thread);
	return CUDA_SUCCESS;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
	int from = place_of(start), to = place_of(end);
	if (!ms || from < 0 || to < 0 || !events[from].recorded || !events[to].recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	*ms = (float)((double)(int64_t)(events[to].recorded - events[from].recorded) / 1e6);
	return CUDA_SUCCESS;
}

#define SYNCED(body)                                                                                                   \
	({                                                                                                             \
		pthread_mutex_lock(&mu);                                                                               \
		CUresult under = (body);                                                                               \
		pthread_mutex_unlock(&mu);                                                                             \
		under;                                                                                                 \
	})

API CUresult cuEventCreate(CUevent *event, unsigned flags)
	BODY(cuEventCreate, 0, ((void)flags, SYNCED(create_event(event))))

API CUresult cuEventDestroy_v2(CUevent event)
	BODY(cuEventDestroy_v2, 0, SYNCED(destroy_event(event)))

TWINS(cuEventRecord, _ptsz, (CUevent event, CUstream stream), 0, SYNCED(record(event, stream, per_thread)))

TWINS(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags), 0,
      ((void)flags, SYNCED(record(event, stream, per_thread))))

API CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
	BODY(cuEventElapsedTime, 0, SYNCED(elapsed(ms, start, end)))

API CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
	BODY(cuEventElapsedTime_v2, 0, SYNCED(elapsed(ms, start, end)))

static CUresult wait_for(CUstream stream, bool per_thread, CUevent event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	capture_wait(stream, per_thread, event);
	return CUDA_SUCCESS;
}

TWINS(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags), 0,
      ((void)flags, wait_for(stream, per_thread, event)))

static CUresult need_context(void)
{
	return current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult need(const void *handle)
{
	return handle ? need_context() : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuCtxSynchronize(void)
	BODY(cuCtxSynchronize, 0, need_context())

API CUresult cuCtxSynchronize_v2(CUcontext context)
	BODY(cuCtxSynchronize_v2, 0, need(context))

TWINS(cuStreamSynchronize, _ptsz, (CUstream stream), 0, ((void)stream, need_context()))

TWINS(cuStreamQuery, _ptsz, (CUstream stream), 0, ((void)stream, need_context()))

API CUresult cuEventSynchronize(CUevent event)
	BODY(cuEventSynchronize, 0, need(event))

API CUresult cuEventQuery(CUevent event)
	BODY(cuEventQuery, 0, need(event))

// An entry is reused, as the addresses of real CUDA streams are.
static CUresult create_stream(CUstream *stream)
{
	CUresult rc = need_context();
	if (rc || !stream)
		return rc ? rc : CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < STREAMS_N; i++) {
		if (streams[i].handle)
			continue;
		streams[i].handle = 0x5587a5e40000 + 0x340 * (uintptr_t)i;
		streams[i].device = current_device();
		*stream = (CUstream)streams[i].handle;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static int find_stream(CUstream stream)
{
	int i = 0;
	while (i < STREAMS_N && (!stream || streams[i].handle != (uintptr_t)stream))
		i++;
	return i;
}

int stream_device(CUstream stream, int otherwise)
{
	pthread_mutex_lock(&mu);
	int i = find_stream(stream);
	int device = i < STREAMS_N ? streams[i].device : otherwise;
	pthread_mutex_unlock(&mu);
	return device;
}

// Destroying an unknown CUDA stream succeeds. Destroying one that records also ends its capture.
static CUresult destroy_stream(CUstream stream)
{
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	capture_abandon(stream);
	int i = find_stream(stream);
	if (i < STREAMS_N)
		streams[i].handle = 0;
	return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(CUstream *stream, unsigned flags)
	BODY(cuStreamCreate, 0, ((void)flags, SYNCED(create_stream(stream))))

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
	BODY(cuStreamCreateWithPriority, 0, ((void)flags, (void)priority, SYNCED(create_stream(stream))))

API CUresult cuStreamDestroy_v2(CUstream stream)
	BODY(cuStreamDestroy_v2, 0, SYNCED(destroy_stream(stream)))

void sync_reset(void)
{
	pthread_mutex_init(&mu, NULL);
	memset(events, 0, sizeof events);
	memset(streams, 0, sizeof streams);
}
