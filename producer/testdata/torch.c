// torch.c: the stub libc10.so. It reports blocks through the function that PyTorch's libc10.so exports:
//
//	c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device)
//
// Compiled with -DREPORT=name, the function has another name, as it may have in another version of PyTorch.
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "torch.h"

#define API __attribute__((visibility("default"), noinline, noclone))

#ifndef REPORT
#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#endif

enum { CPU_TYPE = 0, CUDA_TYPE = 1 }; // c10::DeviceType

// c10::Device: two bytes, passed in one register.
struct device {
	int8_t type, index;
};

void report(void *ptr, int64_t bytes, size_t allocated, size_t reserved, struct device device) __asm__(REPORT);

// The stack variable makes gcc begin with `push %rbp`, which a uprobe emulates.
API void report(void *ptr, int64_t bytes, size_t allocated, size_t reserved, struct device device)
{
	char local;
	__asm__ volatile("" : "=m"(local) : "r"(ptr), "r"(bytes), "r"(allocated), "r"(reserved), "r"((int)device.index));
}

static struct gpu {
	pthread_mutex_t mutex;
	struct torch_block *free;
	uint64_t allocated, reserved;
} gpus[TORCH_DEVICES] = { { .mutex = PTHREAD_MUTEX_INITIALIZER }, { .mutex = PTHREAD_MUTEX_INITIALIZER } };

static uint64_t (*grow)(int device, uint64_t bytes);
static struct torch_report *reports;
static uint64_t reports_n, reports_most;

API void torchBegin(uint64_t (*segment)(int device, uint64_t bytes), uint64_t most_reports)
{
	grow = segment;
	reports = calloc(most_reports, sizeof *reports);
	reports_most = reports ? most_reports : 0;
}

// Beside each report of a block come two that are not about blocks of a GPU: host memory, and a size of 0.
static void tell(struct gpu *g, struct torch_block *b, int64_t bytes)
{
	report((void *)b->ptr, bytes, g->allocated, g->reserved, (struct device){ CUDA_TYPE, (int8_t)b->device });
	uint64_t n = __atomic_fetch_add(&reports_n, 1, __ATOMIC_RELAXED);
	if (n >= reports_most)
		abort();
	reports[n] = (struct torch_report){ b->ptr, bytes, g->allocated, g->reserved, b->device,
					    (uint32_t)syscall(SYS_gettid) };
	report(b, bytes, 1, 2, (struct device){ CPU_TYPE, -1 });
	report(b, 0, 1, 2, (struct device){ CUDA_TYPE, 0 });
}

#define KIB 1024ull
#define MIB (1024 * KIB)

static uint64_t round_to(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

// The sizes of PyTorch's segments: 2 MiB for blocks up to 1 MiB, 20 MiB up to 10 MiB, else multiples of 2 MiB.
static uint64_t segment_bytes(uint64_t bytes)
{
	if (bytes <= MIB)
		return 2 * MIB;
	return bytes < 10 * MIB ? 20 * MIB : round_to(bytes, 2 * MIB);
}

static struct torch_block *block_of(int device, uint64_t ptr, uint64_t bytes)
{
	struct torch_block *b = malloc(sizeof *b);
	if (!b)
		abort();
	*b = (struct torch_block){ .ptr = ptr, .bytes = bytes, .device = device };
	return b;
}

static void put(struct gpu *g, struct torch_block *b)
{
	b->next = g->free;
	g->free = b;
}

// take removes the first free block that is large enough.
static struct torch_block *take(struct gpu *g, uint64_t bytes)
{
	for (struct torch_block **at = &g->free; *at; at = &(*at)->next) {
		struct torch_block *b = *at;
		if (b->bytes >= bytes) {
			*at = b->next;
			return b;
		}
	}
	return NULL;
}

API struct torch_block *torchAlloc(int device, uint64_t bytes)
{
	struct gpu *g = &gpus[device];
	bytes = round_to(bytes, 512);
	pthread_mutex_lock(&g->mutex);
	struct torch_block *b = take(g, bytes);
	if (!b) {
		uint64_t segment = segment_bytes(bytes);
		b = block_of(device, grow(device, segment), segment);
		g->reserved += segment;
	}
	if (b->bytes > bytes) {
		put(g, block_of(device, b->ptr + bytes, b->bytes - bytes));
		b->bytes = bytes;
	}
	g->allocated += bytes;
	tell(g, b, (int64_t)bytes);
	pthread_mutex_unlock(&g->mutex);
	return b;
}

API void torchFree(struct torch_block *b)
{
	struct gpu *g = &gpus[b->device];
	pthread_mutex_lock(&g->mutex);
	g->allocated -= b->bytes;
	tell(g, b, -(int64_t)b->bytes);
	put(g, b);
	pthread_mutex_unlock(&g->mutex);
}

API const struct torch_report *torchLog(uint64_t *n)
{
	*n = reports_n;
	return reports;
}
