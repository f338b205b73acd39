// stub_context.c: contexts, their users, and the context stack of each thread.
#include <pthread.h>
#include <string.h>

#include "stub_internal.h"

enum { CONTEXTS_N = 64, STACK_N = 16 };

static pthread_mutex_t mu;

// guarded by mu; a single word may be read without it
static struct context contexts[CONTEXTS_N]; // the first STUB_DEVICES are the primary contexts and always used
static struct {
	uintptr_t handle;
	int device;
} greens[CONTEXTS_N];

static __thread struct context *stack[STACK_N];
static __thread int depth;

// Every process sees the same handles, as happens with real contexts, so a handle is not unique on a host. The context
// of an ordinal has the same handle on every card.
void context_reset(void)
{
	static const uintptr_t primary[STUB_DEVICES] = { 0x5581c0de0a10, 0x5581c0df37c0 };
	pthread_mutex_init(&mu, NULL);
	memset(contexts, 0, sizeof contexts);
	memset(greens, 0, sizeof greens);
	for (int i = 0; i < STUB_DEVICES; i++)
		contexts[i] = (struct context){ .handle = primary[i], .device = i };
	depth = 0;
}

struct context *current_context(void)
{
	struct context *c = depth ? stack[depth - 1] : NULL;
	if (c && c->green)
		c = c->handle ? &contexts[c->device] : NULL;
	return c && __atomic_load_n(&c->users, __ATOMIC_RELAXED) ? c : NULL;
}

int current_device(void)
{
	const struct context *c = current_context();
	return c ? c->device : -1;
}

static struct context *find(const void *handle)
{
	for (struct context *c = contexts; handle && c < contexts + CONTEXTS_N; c++)
		if (c->handle == (uintptr_t)handle)
			return c;
	return NULL;
}

// end frees everything in a context except pools and physical memory.
static void end(struct context *c)
{
	memory_lock();
	uint64_t bytes = truth->live_bytes + truth->host_live_bytes;
	uint64_t allocations = truth->live_allocations + truth->host_live_allocations;
	memory_end(c);
	array_end(c);
	host_end(c);
	add(&truth->context_bytes, bytes - truth->live_bytes - truth->host_live_bytes);
	add(&truth->context_allocations, allocations - truth->live_allocations - truth->host_live_allocations);
	memory_unlock();
}

static CUresult retain(CUcontext *context, CUdevice device)
{
	CUresult rc = check_out(context, device);
	if (rc)
		return rc;
	__atomic_fetch_add(&contexts[device].users, 1, __ATOMIC_RELAXED);
	*context = (CUcontext)contexts[device].handle;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
	BODY(cuDevicePrimaryCtxRetain, 0, retain(context, device))

// leave removes a user of a primary context, which ends with its last user. The caller holds mu.
static CUresult leave(struct context *c)
{
	if (!c->users)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (c->users == 1)
		end(c);
	__atomic_fetch_sub(&c->users, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult let_go(CUdevice device)
{
	CUresult rc = check_device(device);
	if (rc)
		return rc;
	pthread_mutex_lock(&mu);
	rc = leave(&contexts[device]);
	pthread_mutex_unlock(&mu);
	return rc;
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
	BODY(cuDevicePrimaryCtxRelease, 0, let_go(device))

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
	BODY(cuDevicePrimaryCtxRelease_v2, 0, let_go(device))

// A reset frees everything in the context. Its users remain users.
static CUresult reset(CUdevice device)
{
	CUresult rc = check_device(device);
	if (rc)
		return rc;
	pthread_mutex_lock(&mu);
	end(&contexts[device]);
	pthread_mutex_unlock(&mu);
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxReset(CUdevice device)
	BODY(cuDevicePrimaryCtxReset, 0, reset(device))

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
	BODY(cuDevicePrimaryCtxReset_v2, 0, reset(device))

// make takes the first unused entry, so that handles are reused. The caller holds mu.
static struct context *make(CUdevice device, uintptr_t green)
{
	for (int i = STUB_DEVICES; i < CONTEXTS_N; i++) {
		if (contexts[i].handle)
			continue;
		contexts[i] = (struct context){
			.handle = 0x5581c1a07010 + 0x1a2d0 * (uintptr_t)i, .green = green, .device = device, .users = 1,
		};
		return &contexts[i];
	}
	return NULL;
}

static CUresult push(struct context *c)
{
	if (!c || depth == STACK_N)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = c;
	return CUDA_SUCCESS;
}

// A new context becomes current at once.
static CUresult create(CUcontext *context, CUdevice device)
{
	CUresult rc = check_out(context, device);
	if (rc)
		return rc;
	pthread_mutex_lock(&mu);
	struct context *c = make(device, 0);
	pthread_mutex_unlock(&mu);
	rc = c ? push(c) : CUDA_ERROR_OUT_OF_MEMORY;
	if (rc == CUDA_SUCCESS)
		*context = (CUcontext)c->handle;
	return rc;
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
	BODY(cuCtxCreate_v2, 0, ((void)flags, create(context, device)))

API CUresult cuCtxCreate_v3(CUcontext *context, void *affinities, int affinities_n, unsigned flags, CUdevice device)
	BODY(cuCtxCreate_v3, 0, ((void)affinities, (void)affinities_n, (void)flags, create(context, device)))

API CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device)
	BODY(cuCtxCreate_v4, 0, ((void)params, (void)flags, create(context, device)))

static void destroy_one(struct context *c)
{
	if (!c->green)
		end(c);
	__atomic_store_n(&c->users, 0, __ATOMIC_RELAXED);
	c->handle = 0;
	if (depth && stack[depth - 1] == c)
		depth--;
}

static CUresult destroy(CUcontext context)
{
	pthread_mutex_lock(&mu);
	struct context *c = find(context);
	bool ours = c && c >= contexts + STUB_DEVICES && !c->green;
	if (ours)
		destroy_one(c);
	pthread_mutex_unlock(&mu);
	return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuCtxDestroy_v2(CUcontext context)
	BODY(cuCtxDestroy_v2, 0, destroy(context))

// A green context is a user of the primary context of its device.
static CUresult create_green(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device)
{
	CUresult rc = check_out(green, device);
	if (rc || !desc)
		return rc ? rc : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mu);
	int i = 0;
	while (i < CONTEXTS_N && greens[i].handle)
		i++;
	if (i < CONTEXTS_N) {
		greens[i].handle = 0x5581c7700040 + 0x3c0 * (uintptr_t)i;
		greens[i].device = device;
		__atomic_fetch_add(&contexts[device].users, 1, __ATOMIC_RELAXED);
		*green = (CUgreenCtx)greens[i].handle;
	}
	pthread_mutex_unlock(&mu);
	return i < CONTEXTS_N ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device, unsigned flags)
	BODY(cuGreenCtxCreate, 0, ((void)flags, create_green(green, desc, device)))

static int find_green(CUgreenCtx green)
{
	int i = 0;
	while (i < CONTEXTS_N && (!green || greens[i].handle != (uintptr_t)green))
		i++;
	return i;
}

static CUresult destroy_green(CUgreenCtx green)
{
	pthread_mutex_lock(&mu);
	int i = find_green(green);
	if (i < CONTEXTS_N) {
		greens[i].handle = 0;
		for (struct context *c = contexts; c < contexts + CONTEXTS_N; c++)
			if (c->handle && c->green == (uintptr_t)green)
				destroy_one(c);
		leave(&contexts[greens[i].device]);
	}
	pthread_mutex_unlock(&mu);
	return i < CONTEXTS_N ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuGreenCtxDestroy(CUgreenCtx green)
	BODY(cuGreenCtxDestroy, 0, destroy_green(green))

static CUresult from_green(CUcontext *context, CUgreenCtx green)
{
	pthread_mutex_lock(&mu);
	int i = find_green(green);
	struct context *c = i < CONTEXTS_N ? make(greens[i].device, (uintptr_t)green) : NULL;
	pthread_mutex_unlock(&mu);
	if (!context || !c)
		return CUDA_ERROR_INVALID_VALUE;
	*context = (CUcontext)c->handle;
	return CUDA_SUCCESS;
}

API CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
	BODY(cuCtxFromGreenCtx, 0, from_green(context, green))

static CUresult set_current(CUcontext context)
{
	struct context *c = find(context);
	if (context && !c)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	return c ? push(c) : CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext context)
	BODY(cuCtxSetCurrent, 0, set_current(context))

API CUresult cuCtxPushCurrent_v2(CUcontext context)
	BODY(cuCtxPushCurrent_v2, 0, push(find(context)))

static CUresult pop(CUcontext *context)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = (CUcontext)stack[depth]->handle;
	return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context)
	BODY(cuCtxPopCurrent_v2, 0, pop(context))
