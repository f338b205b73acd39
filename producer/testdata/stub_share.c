// stub_share.c: memory that another process opens, or that another API owns. The opener is a holder. The bytes count
// where they were allocated.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stub_internal.h"

#define TOKEN_MAGIC 0x6e656b6f74627473ull

// guarded by the memory lock
static struct space externals; // handles of imported memory: addresses in a separate space

void share_reset(void)
{
	space_reset(&externals, 0x5585e0000000);
}

// A token contains the handle that it opens and the pid of the owner. All its other bytes differ between tokens.
CUtoken token_make(uint64_t what, uint64_t bytes)
{
	CUtoken t = { { TOKEN_MAGIC, what, (uint64_t)getpid(), bytes } };
	for (int i = 4; i < 8; i++)
		t.words[i] = (what + t.words[i - 1]) * 0x9e3779b97f4a7c15ull + (uint64_t)i;
	return t;
}

bool token_read(const CUtoken *token, struct shared *shared)
{
	memcpy(shared, token, sizeof *shared);
	return shared->magic == TOKEN_MAGIC;
}

CUresult share_out(void *out, int type, uint64_t what, uint64_t bytes)
{
	CUtoken t = token_make(what, bytes);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_HANDLE_FABRIC) {
		memcpy(out, &t, sizeof t);
		return CUDA_SUCCESS;
	}
	if (type != CU_HANDLE_FD)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = memfd_create("stub cuda memory", MFD_CLOEXEC);
	if (fd < 0 || write(fd, &t, sizeof t) != sizeof t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(out, &fd, sizeof fd);
	return CUDA_SUCCESS;
}

CUresult share_in(const void *in, int type, struct shared *shared)
{
	CUtoken t = { { 0 } };
	if (type == CU_HANDLE_FABRIC && in)
		memcpy(&t, in, sizeof t);
	else if (type != CU_HANDLE_FD || pread((int)(intptr_t)in, &t, sizeof t, 0) != sizeof t)
		return CUDA_ERROR_INVALID_VALUE;
	return token_read(&t, shared) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_token(CUipcMemHandle *token, CUdeviceptr dptr)
{
	struct block *b = device_find(dptr);
	if (!token || !b || b->kind != BLOCK_OWNED)
		return CUDA_ERROR_INVALID_VALUE;
	*token = token_make(dptr, b->bytes);
	return CUDA_SUCCESS;
}

static CUresult foreign(CUdeviceptr *dptr, uint64_t bytes)
{
	const struct context *owner = current_context();
	if (!owner)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!dptr || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	struct block *b = device_take(bytes, owner->device, BLOCK_FOREIGN, owner);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*dptr = b->address;
	return CUDA_SUCCESS;
}

// A context that opens the same memory twice gets the same address and must close it twice (measured: driver 580,
// H200). Unlike in the real driver, a process may open its own memory, so that one process is enough for a test.
static CUresult open_token(CUdeviceptr *dptr, const CUipcMemHandle *token)
{
	struct shared shared;
	if (!dptr || !token_read(token, &shared))
		return CUDA_ERROR_INVALID_HANDLE;
	uint64_t origin = shared.what ^ shared.pid << 48;
	struct block *known = device_opened(current_context(), origin);
	if (known) {
		known->handles++;
		*dptr = known->address;
		return CUDA_SUCCESS;
	}
	CUresult rc = foreign(dptr, shared.bytes);
	if (rc == CUDA_SUCCESS) {
		struct block *b = device_find(*dptr);
		b->origin = origin;
		b->handles = 1;
	}
	return rc;
}

static CUresult close_holder(CUdeviceptr dptr)
{
	struct block *b = device_find(dptr);
	if (!b || b->kind != BLOCK_FOREIGN)
		return CUDA_ERROR_INVALID_VALUE;
	if (!b->handles || !--b->handles)
		device_give_back(b);
	return CUDA_SUCCESS;
}

API CUresult cuIpcGetMemHandle(CUipcMemHandle *token, CUdeviceptr dptr)
	BODY(cuIpcGetMemHandle, 0, LOCKED(get_token(token, dptr)))

API CUresult cuIpcOpenMemHandle(CUdeviceptr *dptr, CUipcMemHandle token, unsigned flags)
	BODY(cuIpcOpenMemHandle, 0, ((void)flags, LOCKED(open_token(dptr, &token))))

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle token, unsigned flags)
	BODY(cuIpcOpenMemHandle_v2, 0, ((void)flags, LOCKED(open_token(dptr, &token))))

API CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
	BODY(cuIpcCloseMemHandle, 0, LOCKED(close_holder(dptr)))

static CUresult import(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	if (!memory || !desc || !desc->type || !desc->size)
		return CUDA_ERROR_INVALID_VALUE;
	struct block *b = space_take(&externals, 1, -1);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->kind = BLOCK_FOREIGN;
	add(&truth->holders, 1);
	*memory = (CUexternalMemory)(uintptr_t)b->address;
	return CUDA_SUCCESS;
}

static CUresult check(CUexternalMemory memory, const void *desc)
{
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	return space_find(&externals, (uintptr_t)memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult destroy(CUexternalMemory memory)
{
	struct block *b = space_find(&externals, (uintptr_t)memory);
	if (!b)
		return CUDA_ERROR_INVALID_HANDLE;
	subtract(&truth->holders, 1);
	space_give_back(&externals, b);
	return CUDA_SUCCESS;
}

API CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
	BODY(cuImportExternalMemory, 0, LOCKED(import(memory, desc)))

API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *dptr, CUexternalMemory memory,
					     const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
	BODY(cuExternalMemoryGetMappedBuffer, 0, LOCKED(check(memory, desc) ?: foreign(dptr, desc->size)))

API CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
						     const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc)
	BODY(cuExternalMemoryGetMappedMipmappedArray, 0, LOCKED(check(memory, desc) ?: array_foreign(array)))

API CUresult cuDestroyExternalMemory(CUexternalMemory memory)
	BODY(cuDestroyExternalMemory, 0, LOCKED(destroy(memory)))
