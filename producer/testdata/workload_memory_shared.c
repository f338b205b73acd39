// workload_memory_shared.c: memory that one process owns and another one opens.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "workload.h"

// A channel between two processes for messages of 64 bytes.
struct channel {
	int in, out;
};

static CUtoken receive(struct channel *c)
{
	CUtoken t;
	if (must("read", read(c->in, &t, sizeof t)) != sizeof t)
		fail("the other process has ended");
	return t;
}

static void send(struct channel *c, CUtoken t)
{
	must("write", write(c->out, &t, sizeof t));
}

// turn lets the other process continue, and waits for its turn to end.
static void turn(struct channel *c)
{
	send(c, (CUtoken){ { 0 } });
	receive(c);
}

static void end_turn(struct channel *c)
{
	send(c, (CUtoken){ { 0 } });
}

// other starts a child that runs body and dies with its parent.
static pid_t other(struct channel *mine, void (*body)(struct channel *))
{
	int there[2], back[2];
	must("pipe", pipe(there));
	must("pipe", pipe(back));
	pid_t pid = (pid_t)must("fork", fork());
	*mine = (struct channel){ back[0], there[1] };
	if (pid == 0) {
		must("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
		struct channel own = { there[0], back[1] };
		close(there[1]);
		close(back[0]);
		open_gpu();
		body(&own);
		exit(0);
	}
	close(there[0]);
	close(back[1]);
	return pid;
}

static CUmemGenericAllocationHandle physical(uint64_t bytes)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = { .type = 1, .requestedHandleTypes = 1, .location = { CU_LOCATION_DEVICE, 0 } };
	OK(cuMemCreate(&h, bytes, &prop, 0));
	return h;
}

// Memory that one context opens twice has one address and must be closed twice. The end of the context closes it too.
static void ipc_opens(struct channel *c)
{
	CUdeviceptr d, same;
	CUcontext made;
	CUtoken token = receive(c);
	OK(cuIpcOpenMemHandle_v2(&d, token, 1));
	OK(cuIpcOpenMemHandle_v2(&same, token, 1));
	if (d != same)
		fail("two addresses for one block");
	live(0, 0);
	end_turn(c);
	receive(c);
	OK(cuIpcCloseMemHandle(d));
	end_turn(c);
	receive(c);
	OK(cuIpcCloseMemHandle(d));
	allocate(1 * MB);
	end_turn(c);
	receive(c);
	OK(cuCtxCreate_v2(&made, 0, 0));
	OK(cuIpcOpenMemHandle_v2(&d, token, 1));
	end_turn(c);
	receive(c);
	OK(cuCtxDestroy_v2(made));
	end_turn(c);
	receive(c);
	OK(cuIpcOpenMemHandle_v2(&d, token, 1)); // never closed
	end_turn(c);
	receive(c);
}

void shared_ipc(void)
{
	static const char *const steps[] = { "opened", "closed-once", "closed", "in-context", "context-gone", "kept" };
	struct channel c;
	CUtoken token;
	open_gpu();
	CUdeviceptr d = allocate(16 * MB);
	pid_t pid = other(&c, ipc_opens);
	OK(cuIpcGetMemHandle(&token, d));
	send(&c, token);
	receive(&c);
	for (int i = 0; i < 6; i++) {
		live(16 * MB, 1);
		step(steps[i]);
		if (i < 5)
			turn(&c);
	}
	send(&c, token);
	await_exit(pid);
	release(d);
}

// One handle arrives as a file descriptor, one as a token. A mapping alone keeps the memory too.
static void vmm_imports(struct channel *c)
{
	CUmemGenericAllocationHandle by_fd, by_token;
	CUdeviceptr at;
	CUtoken token = receive(c), fd = receive(c);
	OK(cuMemImportFromShareableHandle(&by_token, &token, CU_HANDLE_FABRIC));
	OK(cuMemImportFromShareableHandle(&by_fd, (void *)(uintptr_t)fd.words[0], CU_HANDLE_FD));
	OK(cuMemAddressReserve(&at, 64 * MB, 0, 0, 0));
	OK(cuMemMap(at, 8 * MB, 0, by_token, 0));
	OK(cuMemMap(at + 8 * MB, 16 * MB, 0, by_fd, 0));
	live(0, 0);
	end_turn(c);
	receive(c);
	OK(cuMemRelease(by_token));
	OK(cuMemUnmap(at + 8 * MB, 16 * MB));
	end_turn(c);
	receive(c);
	OK(cuMemUnmap(at, 8 * MB));
	OK(cuMemRelease(by_fd));
	end_turn(c);
	receive(c);
}

void shared_vmm(void)
{
	static const char *const steps[] = { "mapped", "half", "gone" };
	struct channel c;
	CUtoken token, fd = { { 0 } };
	open_gpu();
	CUmemGenericAllocationHandle a = physical(8 * MB), b = physical(16 * MB);
	OK(cuMemExportToShareableHandle(&token, a, CU_HANDLE_FABRIC, 0));
	OK(cuMemExportToShareableHandle(fd.words, b, CU_HANDLE_FD, 0));
	pid_t pid = other(&c, vmm_imports); // inherits the file descriptor
	send(&c, token);
	send(&c, fd);
	receive(&c);
	for (int i = 0; i < 3; i++) {
		live(24 * MB, 2);
		step(steps[i]);
		if (i < 2)
			turn(&c);
	}
	send(&c, token);
	await_exit(pid);
	OK(cuMemRelease(a));
}

static void pool_imports(struct channel *c)
{
	CUmemoryPool pool;
	CUdeviceptr d;
	CUtoken fd = receive(c), token = receive(c);
	OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd.words[0], CU_HANDLE_FD, 0));
	OK(cuMemPoolImportPointer(&d, pool, &token));
	live(0, 0);
	end_turn(c);
	receive(c);
	OK(cuMemFreeAsync(d, NULL));
	OK(cuMemPoolDestroy(pool));
	end_turn(c);
	receive(c);
}

void shared_pool(void)
{
	struct channel c;
	CUtoken token, fd = { { 0 } };
	CUmemoryPool pool;
	CUdeviceptr d;
	CUmemPoolProps props = { .allocType = 1, .handleTypes = 1, .location = { CU_LOCATION_DEVICE, 0 } };
	open_gpu();
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&d, 4 * MB, pool, NULL));
	OK(cuMemPoolExportPointer(&token, d));
	OK(cuMemPoolExportToShareableHandle(fd.words, pool, CU_HANDLE_FD, 0));
	pid_t pid = other(&c, pool_imports);
	send(&c, fd);
	send(&c, token);
	receive(&c);
	live(4 * MB, 1);
	step("opened");
	turn(&c);
	live(4 * MB, 1);
	step("freed");
	send(&c, token);
	await_exit(pid);
}

// Memory of another API. The import, its mapping, and an array in it are three holders.
void shared_external(void)
{
	CUexternalMemory m;
	CUmipmappedArray a;
	CUdeviceptr d;
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC import = { .type = 1, .handle.fd = 99, .size = 64 * MB };
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = { .offset = 0, .size = 32 * MB };
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC array = { .arrayDesc = { 64, 64, 0, 1, 1, 0 }, .numLevels = 1 };
	open_gpu();
	OK(cuImportExternalMemory(&m, &import));
	OK(cuExternalMemoryGetMappedBuffer(&d, m, &buffer));
	OK(cuExternalMemoryGetMappedMipmappedArray(&a, m, &array));
	live(0, 0);
	step("mapped");
	OK(cuMemFree_v2(d));
	OK(cuMipmappedArrayDestroy(a));
	live(0, 0);
	step("freed");
	OK(cuDestroyExternalMemory(m));
	live(0, 0);
	step("gone");
}
