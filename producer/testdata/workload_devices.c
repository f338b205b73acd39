// workload_devices.c: processes that see different cards at the same ordinal.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "workload.h"

#define BLOCK (16 * MB)

// Prints the pid, the UUID and PCI bus id of the card, and the block that it allocated.
void visible(void)
{
	CUcontext context;
	CUuuid uuid;
	char bus[32];
	int n;
	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	OK(cuDeviceGetUuid(&uuid, 0));
	OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	CUdeviceptr d = allocate(BLOCK + (uint64_t)getpid());
	printf("pid=%d devices=%d uuid=GPU-", getpid(), n);
	for (int i = 0; i < 16; i++)
		printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid.bytes[i]);
	printf(" bus=%s ptr=%#llx bytes=%llu\n", bus, d, BLOCK + (uint64_t)getpid());
	fflush(stdout);
	step("ready");
}

void two_devices(void)
{
	static const char *const cards[] = { "0", "GPU-1f2e3d4c" };
	pid_t pids[2];
	for (int i = 0; i < 2; i++) {
		pids[i] = (pid_t)must("fork", fork());
		if (pids[i] == 0) {
			must("setenv", setenv("CUDA_VISIBLE_DEVICES", cards[i], 1));
			must("execl", execl("/proc/self/exe", "workload", "visible", NULL));
		}
	}
	for (int i = 0; i < 2; i++)
		await_exit(pids[i]);
	step("ready");
}

static void launch(CUfunction f, int n)
{
	for (int i = 0; i < n; i++)
		OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

// The tracer sees nothing before the first step. The last block is in a context whose creation it sees.
void late_kernels(void)
{
	CUcontext made;
	open_gpu();
	struct kernels k = load_kernels();
	step("attached");
	launch(k.add, 3);
	launch(k.mul, 4);
	allocate(3 * MB);
	OK(cuCtxCreate_v2(&made, 0, 0));
	allocate(5 * MB);
	step("live");
}

void asks(void)
{
	static const char *const names[] = {
		"cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuDeviceGetCount", "cuMemcpy3DBatchAsync", "cuMemStubHidden",
		"cuLaunchStubElsewhere",
	};
	CUuuid id = { { 7 } };
	const void *table;
	void *address;
	int status;
	OK(cuInit(0));
	for (int i = 0; i < 7; i++)
		OK(cuGetProcAddress_v2(names[i], &address, 13000, 0, &status));
	FAILS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress_v2("cuMemNothing", &address, 13000, 0, &status));
	for (int i = 0; i < 2; i++)
		OK(cuGetExportTable(&table, &id));
	step("asked");
}

void again_elsewhere(void)
{
	CUcontext first, second;
	open_gpu();
	struct kernels k = load_kernels();
	for (int i = 0; i < 20; i++) {
		OK(cuCtxCreate_v2(&first, 0, 0));
		launch(k.add, 10);
		OK(cuCtxDestroy_v2(first));
		OK(cuCtxCreate_v2(&second, 0, 1));
		if (second != first)
			fail("another handle");
		launch(k.mul, 10);
		OK(cuCtxDestroy_v2(second));
	}
	step("done");
}
