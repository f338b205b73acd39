// workload_memory_life.c: all ways in which memory of each class is allocated and freed, in one process.
#include <stdio.h>
#include <unistd.h>

#include "workload.h"

enum { ARRAY_FLOAT = 0x20 };

static CUcontext retain_primary(CUdevice device)
{
	CUcontext c;
	OK(cuDevicePrimaryCtxRetain(&c, device));
	return c;
}

static void *registered_range(int n)
{
	return (void *)(0x600000000000 + 0x1000000 * (uintptr_t)n);
}

static void new_array(uint64_t width, uint64_t height)
{
	CUarray a;
	CUDA_ARRAY_DESCRIPTOR d = { width, height, ARRAY_FLOAT, 4 };
	OK(cuArrayCreate_v2(&a, &d));
}

static CUmemGenericAllocationHandle physical(uint64_t bytes, int device)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = { .type = 1, .location = { CU_LOCATION_DEVICE, device } };
	OK(cuMemCreate(&h, bytes, &prop, 0));
	return h;
}

static CUmemoryPool new_pool(int device)
{
	CUmemoryPool p;
	CUmemPoolProps props = { .allocType = 1, .location = { CU_LOCATION_DEVICE, device } };
	OK(cuMemPoolCreate(&p, &props));
	return p;
}

// Memory of each class in the current context, on one device. The end of the context frees 22 MB of device memory in 4
// allocations, and 5 MB of host memory in 2.
static void one_of_each(int device, int n)
{
	CUdeviceptr d;
	size_t pitch;
	void *host;
	allocate(1 * MB);
	OK(cuMemAllocPitch_v2(&d, &pitch, 1000, 1024, 4)); // 1 MB
	OK(cuMemAllocManaged(&d, 4 * MB, 1));
	new_array(1024, 1024); // 16 MB
	OK(cuMemHostAlloc(&host, 2 * MB, 0));
	OK(cuMemHostRegister_v2(registered_range(n), 3 * MB, 0));
	OK(cuMemAllocAsync(&d, 32 * MB, NULL));
	OK(cuMemAllocFromPoolAsync(&d, 64 * MB, new_pool(device), NULL));
	physical(128 * MB, device);
}

// 2 contexts on 2 devices. They end by destruction, by reset, and by the release of the last user.
void life_contexts(void)
{
	CUcontext made;
	open_gpu();
	one_of_each(0, 0);
	OK(cuCtxCreate_v2(&made, 0, 1));
	one_of_each(1, 1);
	live(2 * 246 * MB, 14);
	step("live");
	OK(cuCtxDestroy_v2(made));
	live((246 + 224) * MB, 10);
	step("destroyed");
	OK(cuDevicePrimaryCtxReset_v2(0));
	live(2 * 224 * MB, 6);
	step("reset");
	one_of_each(0, 2);
	retain_primary(0);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	live((2 * 224 + 246) * MB, 13);
	step("one-user-left");
	OK(cuDevicePrimaryCtxRelease_v2(0));
	live(3 * 224 * MB, 9);
	step("released");
	OK(cuCtxSetCurrent(retain_primary(0)));
	allocate(5 * MB);
	live((3 * 224 + 5) * MB, 10);
	step("again");
}

// The primary context of the device owns the memory of a green context, and frees it with its last user.
void life_green(void)
{
	CUgreenCtx green, other;
	CUcontext in_green;
	open_gpu();
	allocate(1 * MB);
	OK(cuGreenCtxCreate(&green, (CUdevResourceDesc)0x1000, 0, 1));
	OK(cuGreenCtxCreate(&other, (CUdevResourceDesc)0x2000, 0, 1));
	OK(cuCtxFromGreenCtx(&in_green, green));
	OK(cuCtxPushCurrent_v2(in_green));
	allocate(2 * MB);
	live(3 * MB, 2);
	step("live");
	OK(cuCtxPopCurrent_v2(&in_green));
	OK(cuGreenCtxDestroy(green));
	live(3 * MB, 2);
	step("destroyed");
	OK(cuDevicePrimaryCtxRelease_v2(0));
	live(3 * MB, 2);
	step("released");
	OK(cuGreenCtxDestroy(other));
	live(0, 0);
	step("ended");
}

void life_arrays(void)
{
	CUarray flat, deep, layers;
	CUmipmappedArray levels;
	CUDA_ARRAY_DESCRIPTOR d2 = { 4096, 256, ARRAY_FLOAT, 4 };
	CUDA_ARRAY3D_DESCRIPTOR d3 = { 128, 64, 32, ARRAY_FLOAT, 2, 0 };
	CUDA_ARRAY3D_DESCRIPTOR layered = { 128, 64, 6, 0x01, 4, CU_ARRAY_LAYERED };
	CUDA_ARRAY3D_DESCRIPTOR mipmapped = { 1024, 512, 0, 0x10, 4, 0 };
	open_gpu();
	OK(cuArrayCreate_v2(&flat, &d2));
	OK(cuArray3DCreate_v2(&deep, &d3));
	OK(cuArray3DCreate_v2(&layers, &layered));
	OK(cuMipmappedArrayCreate(&levels, &mipmapped, 5));
	step("live");
	OK(cuArrayDestroy(flat));
	OK(cuMipmappedArrayDestroy(levels));
	live(2 * MB + 192 * KB, 2);
	step("half");
	OK(cuArrayDestroy(deep));
	OK(cuMipmappedArrayCreate(&levels, &mipmapped, 1)); // reuses a freed handle
	step("again");
}

// Memory of a pool is on the device of the pool, and memory of a CUDA stream on the device of the stream. The current
// context does not matter. Destroying a pool frees nothing.
void life_pools(void)
{
	CUdeviceptr d[4];
	CUcontext second;
	CUstream there;
	open_gpu();
	CUmemoryPool pool = new_pool(1);
	OK(cuMemAllocFromPoolAsync(&d[0], 8 * MB, pool, NULL));
	OK(cuMemAllocFromPoolAsync(&d[1], 16 * MB, pool, NULL));
	second = retain_primary(1);
	OK(cuCtxPushCurrent_v2(second));
	OK(cuStreamCreate(&there, 0));
	OK(cuCtxPopCurrent_v2(&second));
	OK(cuMemAllocAsync(&d[2], 32 * MB, there));
	OK(cuMemAllocAsync(&d[3], 64 * MB, NULL));
	live(120 * MB, 4);
	step("live");
	OK(cuMemPoolDestroy(pool));
	live(120 * MB, 4);
	step("destroyed");
	OK(cuMemFreeAsync(d[0], NULL));
	OK(cuMemFree_v2(d[1]));
	OK(cuMemFreeAsync(d[2], there));
	OK(cuStreamDestroy_v2(there));
	live(64 * MB, 1);
	step("freed");
}

// Calls that fail because a struct is missing do not count as lost events.
static void refused(void)
{
	CUmemGenericAllocationHandle h;
	CUarray a;
	CUmemoryPool p;
	CUexternalMemory m;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, 2 * MB, NULL, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(&a, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&p, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(&m, NULL));
}

void life_vmm(void)
{
	CUdeviceptr at;
	CUmemGenericAllocationHandle same;
	open_gpu();
	refused();
	OK(cuMemAddressReserve(&at, 64 * MB, 0, 0, 0));
	CUmemGenericAllocationHandle a = physical(8 * MB, 0), b = physical(16 * MB, 1);
	OK(cuMemMap(at, 8 * MB, 0, a, 0));
	OK(cuMemMap(at + 8 * MB, 8 * MB, 8 * MB, b, 0));
	OK(cuMemMap(at + 16 * MB, 2 * MB, 0, b, 0));
	for (int i = 0; i < 2; i++)
		OK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(at + 4 * MB)));
	live(24 * MB, 2);
	step("live");
	OK(cuMemRelease(a));
	OK(cuMemRelease(a));
	OK(cuMemUnmap(at, 8 * MB)); // one reference is left
	OK(cuMemRelease(b));
	OK(cuMemUnmap(at + 8 * MB, 8 * MB)); // one mapping is left
	live(24 * MB, 2);
	step("held");
	OK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(at + 16 * MB)));
	OK(cuMemUnmap(at + 16 * MB, 2 * MB));
	OK(cuMemRelease(a));
	live(16 * MB, 1);
	step("retained");
	OK(cuMemRelease(same));
	live(0, 0);
	step("gone");
}

static CUgraphExec ready(CUgraph g)
{
	CUgraphExec e;
	OK(cuGraphInstantiateWithFlags(&e, g, 0));
	return e;
}

// Memory of a graph is live from the launch until a graph or the program frees it.
void life_graphs(void)
{
	CUstream s;
	CUgraph captured, noded, freeing;
	CUgraphNode node;
	CUdeviceptr kept, inside, outside;
	open_gpu();
	OK(cuStreamCreate(&s, 0));
	OK(cuStreamBeginCapture_v2(s, 0));
	OK(cuMemAllocAsync(&kept, 4 * MB, s));
	OK(cuMemAllocAsync(&inside, 8 * MB, s));
	OK(cuMemFreeAsync(inside, s));
	OK(cuStreamEndCapture(s, &captured));
	OK(cuGraphCreate(&noded, 0));
	CUDA_MEM_ALLOC_NODE_PARAMS params = { .poolProps = { .allocType = 1, .location = { 1, 1 } }, .bytesize = 16 * MB };
	OK(cuGraphAddMemAllocNode(&node, noded, NULL, 0, &params));
	outside = params.dptr;
	OK(cuGraphCreate(&freeing, 0));
	OK(cuGraphAddMemFreeNode(&node, freeing, NULL, 0, outside));
	CUgraphExec a = ready(captured), b = ready(noded), c = ready(freeing);
	live(0, 0);
	step("ready");
	OK(cuGraphLaunch(a, s));
	OK(cuGraphLaunch(b, s));
	live(20 * MB, 2);
	step("launched");
	for (int i = 0; i < 3; i++) {
		OK(cuMemFreeAsync(kept, s));
		OK(cuGraphLaunch(c, s));
		OK(cuGraphLaunch(a, s));
		OK(cuGraphLaunch(b, s));
	}
	live(20 * MB, 2);
	step("again");
	OK(cuGraphExecDestroy(a));
	OK(cuGraphExecDestroy(b));
	OK(cuGraphDestroy(captured));
	OK(cuGraphDestroy(noded));
	live(20 * MB, 2);
	step("destroyed");
	OK(cuMemFree_v2(kept));
	OK(cuGraphLaunch(c, s));
	live(0, 0);
	step("freed");
}

// The kernel handles of an unloaded module are reused at once, for kernels with other names.
void life_modules(void)
{
	open_gpu();
	for (int i = 0; i < 40; i++) {
		CUmodule m;
		CUfunction f;
		char name[32];
		snprintf(name, sizeof name, "kernel_of_module_%d", i % 20);
		OK(cuModuleLoadData(&m, "image"));
		OK(cuModuleGetFunction(&f, m, name));
		for (int j = 0; j <= i; j++)
			OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
		OK(cuModuleUnload(m));
	}
	step("done");
}

enum { DEEP = 12 };

// Each context becomes current again when the contexts above it are popped.
void life_nested(void)
{
	CUcontext c[2];
	open_gpu();
	for (int i = 0; i < 2; i++)
		c[i] = retain_primary(i);
	for (int i = 1; i < DEEP; i++) // the bottom context exists
		OK(cuCtxPushCurrent_v2(c[i / 2 % 2]));
	step("pushed");
	for (int i = DEEP - 1; i >= 0; i--) {
		allocate((1ull << i) * MB);
		OK(cuCtxPopCurrent_v2(NULL));
	}
	live(4095 * MB, DEEP);
	step("popped");
}

static void launch_on(CUfunction f, CUstream s, int n)
{
	for (int i = 0; i < n; i++)
		OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL));
}

static CUfunction kernel(const char *name)
{
	CUmodule m;
	CUfunction f;
	OK(cuModuleLoadData(&m, "image"));
	OK(cuModuleGetFunction(&f, m, name));
	return f;
}

// Captures that end in an unusual way. Later launches run.
void life_captures(void)
{
	CUstream first, second, third;
	CUevent event;
	CUgraph g;
	open_gpu();
	CUfunction f = kernel("captured"), ran = kernel("ran");
	OK(cuEventCreate(&event, 0));

	OK(cuStreamCreate(&first, 0));
	OK(cuStreamCreate(&second, 0));
	OK(cuStreamBeginCapture_v2(first, 0));
	OK(cuEventRecord(event, first));
	OK(cuStreamWaitEvent(second, event, 0));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(second, &g));
	launch_on(f, first, 3); // the capture continues
	launch_on(f, second, 2);
	OK(cuStreamEndCapture(first, &g));
	launch_on(ran, first, 5);
	CUgraphExec e = ready(g);
	OK(cuGraphLaunch(e, first));
	OK(cuStreamBeginCapture_v2(first, 0));
	launch_on(f, first, 1);
	OK(cuGraphLaunch(e, first)); // recorded into the capture
	OK(cuStreamEndCapture(first, &g));
	e = ready(g);
	for (int i = 0; i < 2; i++)
		OK(cuGraphLaunch(e, first));

	OK(cuStreamBeginCapture_v2(second, 0));
	launch_on(f, second, 1);
	OK(cuStreamDestroy_v2(second)); // and its capture with it
	OK(cuStreamBeginCapture_v2(first, 0));
	OK(cuStreamCreate(&third, 0)); // with the same handle
	if (third != second)
		fail("the CUDA stream has a new handle");
	launch_on(ran, third, 7);
	launch_on(f, first, 1);
	OK(cuStreamEndCapture(first, &g));
	step("ended");

	OK(cuStreamBeginCapture_v2(third, 0));
	launch_on(f, third, 2);
	must("exec", execl("/proc/self/exe", "workload", "life-captures-second", options.steps ? "--steps" : NULL, NULL));
}

// The new image has a CUDA stream with the handle of the one that the old image was recording.
void life_captures_second(void)
{
	CUstream s[3];
	CUgraph g;
	open_gpu();
	CUfunction f = kernel("captured"), ran = kernel("ran");
	for (int i = 0; i < 3; i++)
		OK(cuStreamCreate(&s[i], 0));
	OK(cuStreamBeginCapture_v2(s[2], 0));
	launch_on(f, s[2], 1);
	launch_on(ran, s[1], 11);
	OK(cuStreamEndCapture(s[2], &g));
	step("second");
}
