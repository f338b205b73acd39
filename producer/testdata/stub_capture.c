// stub_capture.c: CUDA streams that record their calls into a graph. One CUDA stream begins the capture. Others join by
// waiting for a CUDA event that was recorded in one of them, and leave when the capture ends.
#include <pthread.h>
#include <string.h>

#include "stub_internal.h"

enum { CAPTURES_N = 32, MEMBERS_N = 16 };

// lane identifies a CUDA stream in a capture. Each thread has its own default CUDA stream.
struct lane {
	uintptr_t stream; // 0 = none
	pthread_t thread; // of a per-thread default CUDA stream, else 0
};

struct capture {
	struct graph *graph; // NULL = unused
	struct lane lanes[MEMBERS_N]; // the first one began the capture
	uintptr_t events[MEMBERS_N];
	int lanes_n, events_n;
};

static pthread_mutex_t mu;

// guarded by mu
static struct capture captures[CAPTURES_N];

int captures_n; // used entries; read without mu

void capture_reset(void)
{
	pthread_mutex_init(&mu, NULL);
	memset(captures, 0, sizeof captures);
	captures_n = 0;
}

static struct lane lane_of(CUstream stream, bool per_thread)
{
	if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
		return (struct lane){ (uintptr_t)CU_STREAM_PER_THREAD, pthread_self() };
	return (struct lane){ stream ? (uintptr_t)stream : (uintptr_t)CU_STREAM_LEGACY, 0 };
}

static bool is_member(const struct capture *c, struct lane lane)
{
	for (int i = 0; i < c->lanes_n; i++)
		if (c->lanes[i].stream == lane.stream && c->lanes[i].thread == lane.thread)
			return true;
	return false;
}

static struct capture *find(struct lane lane)
{
	for (struct capture *c = captures; c < captures + CAPTURES_N; c++)
		if (c->graph && is_member(c, lane))
			return c;
	return NULL;
}

struct graph *capture_graph(CUstream stream, bool per_thread)
{
	pthread_mutex_lock(&mu);
	struct capture *c = find(lane_of(stream, per_thread));
	struct graph *g = c ? c->graph : NULL;
	pthread_mutex_unlock(&mu);
	return g;
}

static void forget_event(uintptr_t event)
{
	for (struct capture *c = captures; c < captures + CAPTURES_N; c++)
		for (int i = 0; i < c->events_n; i++)
			if (c->events[i] == event)
				c->events[i] = c->events[--c->events_n];
}

// capture_event moves a recorded CUDA event to the capture of this CUDA stream, if it has one.
void capture_event(CUevent event, CUstream stream, bool per_thread)
{
	if (!__atomic_load_n(&captures_n, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&mu);
	forget_event((uintptr_t)event);
	struct capture *c = find(lane_of(stream, per_thread));
	if (c && c->events_n < MEMBERS_N)
		c->events[c->events_n++] = (uintptr_t)event;
	pthread_mutex_unlock(&mu);
}

void capture_wait(CUstream stream, bool per_thread, CUevent event)
{
	if (!__atomic_load_n(&captures_n, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&mu);
	struct lane lane = lane_of(stream, per_thread);
	for (struct capture *c = captures; c < captures + CAPTURES_N; c++)
		for (int i = 0; i < c->events_n; i++)
			if (c->events[i] == (uintptr_t)event && !is_member(c, lane) && c->lanes_n < MEMBERS_N)
				c->lanes[c->lanes_n++] = lane;
	pthread_mutex_unlock(&mu);
}

static CUresult begin_in(struct lane lane, struct graph *g)
{
	if (find(lane))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct capture *c = captures;
	while (c < captures + CAPTURES_N && c->graph)
		c++;
	if (c == captures + CAPTURES_N || !g)
		return CUDA_ERROR_INVALID_VALUE;
	*c = (struct capture){ .graph = g, .lanes = { lane }, .lanes_n = 1 };
	__atomic_fetch_add(&captures_n, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

// The legacy default CUDA stream cannot be captured.
static CUresult begin(CUstream stream, bool per_thread, struct graph *g)
{
	struct lane lane = lane_of(stream, per_thread);
	if (lane.stream == (uintptr_t)CU_STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&mu);
	CUresult rc = begin_in(lane, g);
	pthread_mutex_unlock(&mu);
	return rc;
}

static CUresult end(CUstream stream, bool per_thread, CUgraph *graph)
{
	pthread_mutex_lock(&mu);
	struct lane lane = lane_of(stream, per_thread);
	struct capture *c = find(lane);
	CUresult rc = !graph ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	if (!c || c->lanes[0].stream != lane.stream || c->lanes[0].thread != lane.thread)
		rc = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (rc == CUDA_SUCCESS) {
		*graph = graph_handle(c->graph);
		*c = (struct capture){ 0 };
		__atomic_fetch_sub(&captures_n, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&mu);
	return rc;
}

void capture_abandon(CUstream stream)
{
	if (!__atomic_load_n(&captures_n, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&mu);
	struct capture *c = find(lane_of(stream, false));
	if (c && c->lanes[0].stream == (uintptr_t)stream) {
		*c = (struct capture){ 0 };
		__atomic_fetch_sub(&captures_n, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&mu);
}

TWINS(cuStreamBeginCapture, _ptsz, (CUstream stream), 0, begin(stream, per_thread, graph_new()))

TWINS(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, int mode), 0,
      mode < 0 || mode > 2 ? CUDA_ERROR_INVALID_VALUE : begin(stream, per_thread, graph_new()))

TWINS(cuStreamBeginCaptureToGraph, _ptsz,
      (CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges, size_t after_n, int mode), 0,
      ((void)after, (void)edges, (void)after_n, (void)mode, begin(stream, per_thread, graph_of(graph))))

TWINS(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph), 0, end(stream, per_thread, graph))
