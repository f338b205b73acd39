// workload_memory_shared.c: memory that one process opens and another one has.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "workload.h"

// What two processes tell each other: 64 bytes a time.
struct line {
	int in, out;
};

static CUtoken hear(struct line *l)
{
	CUtoken t;
	if (must("read", read(l->in, &t, sizeof t)) != sizeof t)
		fail("the other process is gone");
	return t;
}

static void say(struct line *l, CUtoken t)
{
	must("write", write(l->out, &t, sizeof t));
}

// turn lets the other process go on, and waits until it did.
static void turn(struct line *l)
{
	say(l, (CUtoken){ { 0 } });
	hear(l);
}

static void end_turn(struct line *l)
{
	say(l, (CUtoken){ { 0 } });
}

// A child runs body; it dies with its parent.
static pid_t other(struct line *mine, void (*body)(struct line *))
{
	int there[2], back[2];
	must("pipe", pipe(there));
	must("pipe", pipe(back));
	pid_t pid = (pid_t)must("fork", fork());
	*mine = (struct line){ back[0], there[1] };
	if (pid == 0) {
		must("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
		struct line own = { there[0], back[1] };
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

// Opened twice in one context it has one address and must be closed twice; the end of the context closes it too.
static void ipc_opens(struct line *l)
{
	CUdeviceptr d, same;
	CUcontext made;
	CUtoken token = hear(l);
	OK(cuIpcOpenMemHandle_v2(&d, token, 1));
	OK(cuIpcOpenMemHandle_v2(&same, token, 1));
	if (d != same)
		fail("two addresses for one block");
	live(0, 0);
	end_turn(l);
	hear(l);
	OK(cuIpcCloseMemHandle(d));
	end_turn(l);
	hear(l);
	OK(cuIpcCloseMemHandle(d));
	allocate(1 * MB);
	end_turn(l);
	hear(l);
	OK(cuCtxCreate_v2(&made, 0, 0));
	OK(cuIpcOpenMemHandle_v2(&d, token, 1));
	end_turn(l);
	hear(l);
	OK(cuCtxDestroy_v2(made));
	end_turn(l);
	hear(l);
	OK(cuIpcOpenMemHandle_v2(&d, token, 1)); // and never closed
	end_turn(l);
	hear(l);
}

void shared_ipc(void)
{
	static const char *const steps[] = { "opened", "closed-once", "closed", "in-context", "context-gone", "kept" };
	struct line l;
	CUtoken token;
	open_gpu();
	CUdeviceptr d = allocate(16 * MB);
	pid_t pid = other(&l, ipc_opens);
	OK(cuIpcGetMemHandle(&token, d));
	say(&l, token);
	hear(&l);
	for (int i = 0; i < 6; i++) {
		live(16 * MB, 1);
		step(steps[i]);
		if (i < 5)
			turn(&l);
	}
	say(&l, token);
	await_exit(pid);
	release(d);
}

// A handle that came as a file descriptor, and one that came as a token. Mappings alone hold them too.
static void vmm_imports(struct line *l)
{
	CUmemGenericAllocationHandle by_fd, by_token;
	CUdeviceptr at;
	CUtoken token = hear(l), fd = hear(l);
	OK(cuMemImportFromShareableHandle(&by_token, &token, CU_HANDLE_FABRIC));
	OK(cuMemImportFromShareableHandle(&by_fd, (void *)(uintptr_t)fd.words[0], CU_HANDLE_FD));
	OK(cuMemAddressReserve(&at, 64 * MB, 0, 0, 0));
	OK(cuMemMap(at, 8 * MB, 0, by_token, 0));
	OK(cuMemMap(at + 8 * MB, 16 * MB, 0, by_fd, 0));
	live(0, 0);
	end_turn(l);
	hear(l);
	OK(cuMemRelease(by_token));
	OK(cuMemUnmap(at + 8 * MB, 16 * MB));
	end_turn(l);
	hear(l);
	OK(cuMemUnmap(at, 8 * MB));
	OK(cuMemRelease(by_fd));
	end_turn(l);
	hear(l);
}

void shared_vmm(void)
{
	static const char *const steps[] = { "mapped", "half", "gone" };
	struct line l;
	CUtoken token, fd = { { 0 } };
	open_gpu();
	CUmemGenericAllocationHandle a = physical(8 * MB), b = physical(16 * MB);
	OK(cuMemExportToShareableHandle(&token, a, CU_HANDLE_FABRIC, 0));
	OK(cuMemExportToShareableHandle(fd.words, b, CU_HANDLE_FD, 0));
	pid_t pid = other(&l, vmm_imports); // it has the file descriptor too
	say(&l, token);
	say(&l, fd);
	hear(&l);
	for (int i = 0; i < 3; i++) {
		live(24 * MB, 2);
		step(steps[i]);
		if (i < 2)
			turn(&l);
	}
	say(&l, token);
	await_exit(pid);
	OK(cuMemRelease(a));
}

static void pool_imports(struct line *l)
{
	CUmemoryPool pool;
	CUdeviceptr d;
	CUtoken fd = hear(l), token = hear(l);
	OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd.words[0], CU_HANDLE_FD, 0));
	OK(cuMemPoolImportPointer(&d, pool, &token));
	live(0, 0);
	end_turn(l);
	hear(l);
	OK(cuMemFreeAsync(d, NULL));
	OK(cuMemPoolDestroy(pool));
	end_turn(l);
	hear(l);
}

void shared_pool(void)
{
	struct line l;
	CUtoken token, fd = { { 0 } };
	CUmemoryPool pool;
	CUdeviceptr d;
	CUmemPoolProps props = { .allocType = 1, .handleTypes = 1, .location = { CU_LOCATION_DEVICE, 0 } };
	open_gpu();
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&d, 4 * MB, pool, NULL));
	OK(cuMemPoolExportPointer(&token, d));
	OK(cuMemPoolExportToShareableHandle(fd.words, pool, CU_HANDLE_FD, 0));
	pid_t pid = other(&l, pool_imports);
	say(&l, fd);
	say(&l, token);
	hear(&l);
	live(4 * MB, 1);
	step("opened");
	turn(&l);
	live(4 * MB, 1);
	step("freed");
	say(&l, token);
	await_exit(pid);
}

// Memory of another API: the import, what is mapped of it, and an array in it are each a holder.
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
