// workload_calls.c: kernels, copies, and all kinds of allocations.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "workload.h"

void launches(void)
{
	open_gpu();
	struct kernels k = load_kernels();
	for (long i = 0; i < count_or(1000); i++) {
		OK(cuLaunchKernel(k.add, 1024, 2, 1, 256, 1, 1, 0, NULL, NULL, NULL));
		if (i % 2)
			OK(cuLaunchKernel_ptsz(k.mul, 512, 1, 3, 16, 16, 2, 1024, NULL, NULL, NULL));
		else
			OK(cuLaunchKernel(k.mul, 512, 1, 3, 16, 16, 2, 1024, NULL, NULL, NULL));
	}
	step("done");
}

// boot_ns reads the clock that the stub and Linux's BPF programs use.
static uint64_t boot_ns(void)
{
	struct timespec t;
	must("clock_gettime", clock_gettime(CLOCK_BOOTTIME, &t));
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// TIMED repeats a copy and prints the nanoseconds around all calls. The stub sums the nanoseconds inside the same
// calls, so a correct trace of them lies between the two sums, however the threads are scheduled.
#define TIMED(times, function, ...)                                                                                    \
	do {                                                                                                           \
		uint64_t around = 0;                                                                                   \
		for (int i = 0; i < (times); i++) {                                                                    \
			uint64_t start = boot_ns();                                                                    \
			OK(function(__VA_ARGS__));                                                                     \
			around += boot_ns() - start;                                                                   \
		}                                                                                                      \
		printf("around " #function " %" PRIu64 "\n", around);                                                  \
	} while (0)

void copies(void)
{
	open_gpu();
	void *host;
	OK(cuMemHostAlloc(&host, 8 * MB, 0));
	CUdeviceptr a = allocate(8 * MB), b = allocate(8 * MB);
	TIMED(40, cuMemcpyHtoD_v2, a, host, 8 * MB);
	TIMED(40, cuMemcpyDtoH_v2, host, a, 8 * MB);
	TIMED(10, cuMemcpyDtoD_v2, b, a, 8 * MB);
	for (int i = 0; i < 20; i++)
		OK(cuMemcpyHtoDAsync_v2(b, host, 1 * MB, NULL));
	OK(cuStreamSynchronize(NULL));
	step("done");
	release(a);
	release(b);
	OK(cuMemFreeHost(host));
}

struct segment {
	CUdeviceptr at;
	uint64_t bytes;
	CUmemGenericAllocationHandle handle;
};

static void segment_map(struct segment *s)
{
	CUmemAllocationProp prop = { .type = 1, .location = { .type = 1, .id = 0 } };
	CUmemAccessDesc access = { .location = { .type = 1, .id = 0 }, .flags = 3 };
	OK(cuMemCreate(&s->handle, s->bytes, &prop, 0));
	OK(cuMemMap(s->at, s->bytes, 0, s->handle, 0));
	OK(cuMemSetAccess(s->at, s->bytes, &access, 1));
}

void expandable(void)
{
	struct segment s[5] = { { .bytes = 2 * MB }, { .bytes = 20 * MB }, { .bytes = 20 * MB }, { .bytes = 2 * MB },
				{ .bytes = 20 * MB } };
	CUdeviceptr at;
	open_gpu();
	OK(cuMemAddressReserve(&at, 1024 * MB, 0, 0, 0));
	for (int i = 0; i < 5; i++) {
		s[i].at = at;
		at += s[i].bytes;
		segment_map(&s[i]);
	}
	live(64 * MB, 5);
	step("live");
	for (int i = 0; i < 2; i++) {
		OK(cuMemUnmap(s[i].at, s[i].bytes));
		OK(cuMemRelease(s[i].handle));
	}
	OK(cuMemRelease(s[2].handle)); // still mapped: its bytes stay live
	live(42 * MB, 3);
	step("half");
	OK(cuMemUnmap(s[2].at, s[2].bytes));
	live(22 * MB, 2);
	step("end");
}

// In the scenario `every`, each call has its own block size, a multiple of 4 KB.
static void every_copy(CUdeviceptr d, void *h)
{
	OK(cuMemcpyHtoD_v2(d, h, 4 * KB));
	OK(cuMemcpyHtoD_v2_ptds(d, h, 8 * KB));
	OK(cuMemcpyDtoH_v2(h, d, 12 * KB));
	OK(cuMemcpyDtoH_v2_ptds(h, d, 16 * KB));
	OK(cuMemcpyDtoD_v2(d, d, 20 * KB));
	OK(cuMemcpyDtoD_v2_ptds(d, d, 24 * KB));
	OK(cuMemcpyHtoDAsync_v2(d, h, 28 * KB, NULL));
	OK(cuMemcpyHtoDAsync_v2_ptsz(d, h, 32 * KB, NULL));
	OK(cuMemcpyDtoHAsync_v2(h, d, 36 * KB, NULL));
	OK(cuMemcpyDtoHAsync_v2_ptsz(h, d, 40 * KB, NULL));
	OK(cuMemcpyDtoDAsync_v2(d, d, 44 * KB, NULL));
	OK(cuMemcpyDtoDAsync_v2_ptsz(d, d, 48 * KB, NULL));
	OK(cuStreamSynchronize(NULL));
	OK(cuCtxSynchronize());
}

static void every_launch(void)
{
	struct kernels k = load_kernels();
	CUfunction add;
	OK(cuKernelGetFunction(&add, (CUkernel)k.add));
	if (add == k.add)
		fail("cuKernelGetFunction created no new handle");
	CUlaunchConfig config = { 7, 8, 9, 10, 11, 12, 2048, (CUstream)2, NULL, 0 };
	OK(cuLaunchKernel(add, 1, 2, 3, 4, 5, 6, 512, (CUstream)1, NULL, NULL));
	OK(cuLaunchKernel_ptsz(k.mul, 1, 2, 3, 4, 5, 6, 512, NULL, NULL, NULL));
	OK(cuLaunchKernelEx(&config, add, NULL, NULL));
	OK(cuLaunchKernelEx_ptsz(&config, k.mul, NULL, NULL));
	OK(cuGraphLaunch((CUgraphExec)0x55d1c0ffee00, NULL));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

// The calls of ordinary programs come first in the table. This is the last of them.
static void every_was_called(void)
{
	const struct stub_truth *t = stubTruth();
	for (uint32_t i = 0; i == 0 || strcmp(t->calls[i - 1].symbol, "cuKernelGetFunction") != 0; i++)
		if (!t->calls[i].ok)
			fail("%s was not called", t->calls[i].symbol);
}

void every(void)
{
	CUdeviceptr d[5], range;
	size_t pitch, available, total;
	char name[64];
	void *host;
	open_gpu();
	OK(cuDeviceGetName(name, sizeof name, 0));
	OK(cuDeviceTotalMem_v2(&total, 0));

	d[0] = allocate(64 * KB);
	OK(cuMemAllocManaged(&d[1], 68 * KB, 1));
	OK(cuMemAllocPitch_v2(&d[2], &pitch, 1000, 72, 4)); // 1024 x 72 bytes
	OK(cuMemAllocAsync(&d[3], 76 * KB, NULL));
	OK(cuMemAllocAsync_ptsz(&d[4], 80 * KB, NULL));
	OK(cuMemHostAlloc(&host, 84 * KB, 0));
	OK(cuMemAddressReserve(&range, 4 * MB, 0, 0, 0));
	struct segment s = { .at = range, .bytes = 2 * MB };
	segment_map(&s);
	every_copy(d[0], host);
	every_launch();
	OK(cuMemGetInfo_v2(&available, &total));
	live(2 * MB + 360 * KB, 6);
	if (total - available != 2 * MB + 360 * KB)
		fail("cuMemGetInfo_v2 says %zu bytes are used", total - available);
	step("live");

	for (int i = 0; i < 3; i++)
		release(d[i]);
	OK(cuMemFreeAsync(d[3], NULL));
	OK(cuMemFreeAsync_ptsz(d[4], NULL));
	OK(cuMemFreeHost(host));
	OK(cuMemUnmap(s.at, s.bytes));
	OK(cuMemRelease(s.handle));
	OK(cuMemAddressFree(range, 4 * MB));
	live(0, 0);
	every_was_called();
	step("freed");
}

void later(void)
{
	step("mapped");
	open_gpu();
	CUdeviceptr d = allocate(4 * MB);
	step("live");
	release(d);
}

static pthread_barrier_t renaming;

static void *renamed_thread(void *arg)
{
	(void)arg;
	allocate(3 * MB);
	meet(&renaming);
	meet(&renaming);
	must("prctl", prctl(PR_SET_NAME, "after-t"));
	meet(&renaming);
	meet(&renaming);
	allocate(4 * MB);
	return NULL;
}

void renamed(void)
{
	pthread_barrier_init(&renaming, NULL, 2);
	open_gpu();
	allocate(1 * MB);
	pthread_t thread = start_thread("before-t", renamed_thread, NULL);
	meet(&renaming);
	step("before");
	meet(&renaming);
	must("prctl", prctl(PR_SET_NAME, "after-p"));
	meet(&renaming);
	step("named");
	meet(&renaming);
	allocate(2 * MB);
	join_thread(thread);
}
