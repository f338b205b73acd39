// workload_tensors.c: blocks of PyTorch's allocator, which the stub libc10.so simulates.
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "torch.h"
#include "workload.h"

// The functions of the library, which a program loads with dlopen, as Python does.
static struct {
	void *library;
	__typeof__(torchBegin) *begin;
	__typeof__(torchAlloc) *alloc;
	__typeof__(torchFree) *free;
	__typeof__(torchLog) *log;
	uint64_t printed; // reports
} torch;

static void *symbol(const char *name)
{
	void *address = dlsym(torch.library, name);
	if (!address)
		fail("%s", dlerror());
	return address;
}

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[TORCH_DEVICES];

static uint64_t segment(int device, uint64_t bytes)
{
	pthread_mutex_lock(&driver);
	if (!contexts[device])
		OK(cuDevicePrimaryCtxRetain(&contexts[device], device));
	pthread_mutex_unlock(&driver);
	CUcontext popped;
	OK(cuCtxPushCurrent_v2(contexts[device]));
	CUdeviceptr ptr = allocate(bytes);
	OK(cuCtxPopCurrent_v2(&popped));
	return ptr;
}

static void load(void)
{
	torch.library = dlopen("libc10.so", RTLD_NOW);
	if (!torch.library)
		fail("%s", dlerror());
	torch.begin = symbol("torchBegin");
	torch.alloc = symbol("torchAlloc");
	torch.free = symbol("torchFree");
	torch.log = symbol("torchLog");
	torch.printed = 0;
	torch.begin(segment, 1 << 20);
}

static void unload(void)
{
	if (dlclose(torch.library))
		fail("%s", dlerror());
}

// print writes the reports since the last print: device, thread, address, bytes, allocated, reserved.
static void print(void)
{
	uint64_t n;
	const struct torch_report *log = torch.log(&n);
	for (; torch.printed < n; torch.printed++) {
		const struct torch_report *r = &log[torch.printed];
		printf("block %" PRId32 " %" PRIu32 " %#" PRIx64 " %" PRId64 " %" PRIu64 " %" PRIu64 "\n", r->device,
		       r->tid, r->ptr, r->bytes, r->allocated, r->reserved);
	}
}

enum { KEPT = 16, LATE = 3 };

static struct worker {
	pthread_t thread;
	unsigned number;
	struct torch_block *kept[KEPT];
} workers[64];

// churn replaces one of its blocks at a time, on both devices.
static void *churn(void *arg)
{
	struct worker *w = arg;
	unsigned seed = 1 + w->number;
	for (long i = 0; i < count_or(1000); i++) {
		struct torch_block **slot = &w->kept[rand_r(&seed) % KEPT];
		if (*slot)
			torch.free(*slot);
		uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % (256 * KB);
		if (i % 50 == 0)
			bytes *= 60;
		*slot = torch.alloc(rand_r(&seed) % TORCH_DEVICES, bytes);
	}
	return NULL;
}

static void churn_all(void)
{
	int n = threads_or(4);
	if (n > (int)(sizeof workers / sizeof *workers))
		fail("%d threads are too many", n);
	for (int i = 0; i < n; i++) {
		workers[i].number = (unsigned)i;
		workers[i].thread = start_thread("tensors", churn, &workers[i]);
	}
	for (int i = 0; i < n; i++)
		join_thread(workers[i].thread);
}

static void free_all(void)
{
	for (int i = 0; i < threads_or(4); i++) {
		for (int k = 0; k < KEPT; k++) {
			if (workers[i].kept[k])
				torch.free(workers[i].kept[k]);
			workers[i].kept[k] = NULL;
		}
	}
}

void tensors(void)
{
	open_gpu();
	load();
	step("mapped");
	churn_all();
	print();
	step("live");
	free_all();
	print();
	step("freed");
	unload();
	step("unloaded");
}

void tensors_late(void)
{
	struct torch_block *early[LATE];
	open_gpu();
	load();
	for (int i = 0; i < LATE; i++)
		early[i] = torch.alloc(0, 10 * MB);
	print();
	step("allocated");
	struct torch_block *later = torch.alloc(0, 1 * MB);
	torch.free(early[0]);
	print();
	step("live");
	torch.free(later);
	for (int i = 1; i < LATE; i++)
		torch.free(early[i]);
	unload();
}
