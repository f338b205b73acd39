// workload_gaps.c: waits, launches and asynchronous copies, with bounds of the times between them.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "workload.h"

static uint64_t now(void)
{
	struct timespec t;
	must("clock_gettime", clock_gettime(CLOCK_BOOTTIME, &t));
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// Each round copies (round + 1) x 4 KB from pageable or pinned memory, waits, and launches a kernel in the same or in
// another CUDA stream. It runs on the next CPU. Its line is: bytes, pinned, launched in the same CUDA stream, and bounds
// in ns: of the time from the end of the wait to the launch, and from the copy to the end of the wait.
void gaps(void)
{
	open_gpu();
	struct kernels k = load_kernels();
	CUstream copies, other;
	OK(cuStreamCreate(&copies, 0));
	OK(cuStreamCreate(&other, 0));
	long rounds = count_or(200);
	uint64_t bytes = (uint64_t)rounds * 4 * KB;
	CUdeviceptr d = allocate(bytes);
	void *memory[2] = { malloc(bytes), NULL };
	OK(cuMemHostAlloc(&memory[1], bytes, 0));
	for (long i = 0; i < rounds; i++) {
		bool pinned = i % 2, same = i % 3 == 0;
		uint64_t n = (uint64_t)(i + 1) * 4 * KB;
		pin((int)i);
		uint64_t submit = now();
		OK(cuMemcpyHtoDAsync_v2(d, memory[pinned], n, copies));
		uint64_t submitted = now();
		usleep(100);
		uint64_t wait = now();
		OK(cuStreamSynchronize(copies));
		uint64_t waited = now();
		usleep((useconds_t)(i % 5) * 200);
		uint64_t launch = now();
		OK(cuLaunchKernel(k.add, 1, 1, 1, 1, 1, 1, 0, same ? copies : other, NULL, NULL));
		uint64_t launched = now();
		printf("%lu %d %d %lu %lu %lu %lu\n", n, pinned, same, launch - waited, launched - wait, wait - submitted,
		       waited - submit);
	}
	OK(cuMemFreeHost(memory[1]));
	release(d);
	free(memory[0]);
	step("done");
}
