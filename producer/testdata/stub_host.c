// stub_host.c: host memory that devices can access: allocated (pinned), or memory of the program (registered).
#include <stdlib.h>

#include "stub_internal.h"

struct registered {
	struct registered *next;
	uint64_t address, bytes;
	const struct context *owner;
};

// guarded by the memory lock
static struct space host_space;
static struct registered *registrations;

void host_reset(void)
{
	space_reset(&host_space, 0x7b0000000000);
	registrations = NULL;
}

static void charge(uint64_t bytes, enum stub_class class)
{
	add(&truth->class_bytes[class], bytes);
	add(&truth->host_live_bytes, bytes);
	add(&truth->host_live_allocations, 1);
}

static void discharge(uint64_t bytes, enum stub_class class)
{
	subtract(&truth->class_bytes[class], bytes);
	subtract(&truth->host_live_bytes, bytes);
	subtract(&truth->host_live_allocations, 1);
}

static void gone(const struct block *b)
{
	discharge(b->bytes, STUB_CLASS_PINNED);
}

static void unregister(struct registered **at)
{
	struct registered *r = *at;
	*at = r->next;
	discharge(r->bytes, STUB_CLASS_REGISTERED);
	free(r);
}

void host_end(const struct context *owner)
{
	space_end(&host_space, owner, gone);
	for (struct registered **at = &registrations; *at;) {
		if ((*at)->owner == owner)
			unregister(at);
		else
			at = &(*at)->next;
	}
}

static CUresult allocate_host(void **pp, uint64_t bytes)
{
	CUresult rc = alloc_failure();
	if (rc)
		return rc;
	if (current_device() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!pp || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memory_lock();
	struct block *b = space_take(&host_space, bytes, -1);
	if (b) {
		b->owner = current_context();
		charge(bytes, STUB_CLASS_PINNED);
		*pp = (void *)(uintptr_t)b->address;
	}
	memory_unlock();
	return b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release_host(void *p, uint64_t *bytes)
{
	CUresult rc = free_failure();
	if (rc || !p)
		return rc;
	memory_lock();
	struct block *b = space_find(&host_space, (uintptr_t)p);
	if (b) {
		*bytes = b->bytes;
		discharge(b->bytes, STUB_CLASS_PINNED);
		space_give_back(&host_space, b);
	}
	memory_unlock();
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct registered **find(const void *p)
{
	struct registered **at = &registrations;
	while (*at && (*at)->address != (uintptr_t)p)
		at = &(*at)->next;
	return at;
}

static CUresult enrol(void *p, uint64_t bytes)
{
	if (current_device() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!p || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (*find(p))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	struct registered *r = malloc(sizeof *r);
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct registered){ registrations, (uintptr_t)p, bytes, current_context() };
	registrations = r;
	charge(bytes, STUB_CLASS_REGISTERED);
	return CUDA_SUCCESS;
}

static CUresult strike(void *p, uint64_t *bytes)
{
	struct registered **at = find(p);
	if (!*at)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	*bytes = (*at)->bytes;
	unregister(at);
	return CUDA_SUCCESS;
}

API CUresult cuMemHostAlloc(void **pp, size_t bytes, unsigned flags)
	BODY(cuMemHostAlloc, bytes, ((void)flags, allocate_host(pp, bytes)))

API CUresult cuMemAllocHost_v2(void **pp, size_t bytes)
	BODY(cuMemAllocHost_v2, bytes, allocate_host(pp, bytes))

API CUresult cuMemFreeHost(void *p)
{
	uint64_t bytes = 0;
	BODY(cuMemFreeHost, bytes, release_host(p, &bytes))
}

API CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
	BODY(cuMemHostRegister_v2, bytes, ((void)flags, LOCKED(enrol(p, bytes))))

API CUresult cuMemHostUnregister(void *p)
{
	uint64_t bytes = 0;
	BODY(cuMemHostUnregister, bytes, LOCKED(strike(p, &bytes)))
}
