// stub_truth.c: the totals of the process, and the initial state of a process image.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "stub_internal.h"

struct stub_truth *truth;

static const char *const call_names[] = {
#define STUB_CALL_NAME(name, params) #name,
	STUB_EACH_CALL(STUB_CALL_NAME)
};

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "stub libcuda: %s: %s\n", what, strerror(errno));
	abort();
}

// truth_file creates a file for this image. It returns -1 if GPUTAP_STUB_TRUTH is not set.
static int truth_file(void)
{
	const char *dir = getenv("GPUTAP_STUB_TRUTH");
	if (!dir || !*dir)
		return -1;
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/%d.%" PRIu64, dir, getpid(),
			 (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
	if (n >= (int)sizeof path) {
		errno = ENAMETOOLONG;
		die("GPUTAP_STUB_TRUTH");
	}
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, sizeof *truth) < 0)
		die(path);
	return fd;
}

// truth_open maps zeroed totals. In a forked child they replace the totals of the parent at the same address.
static void truth_open(void)
{
	int fd = truth_file();
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *at = mmap(truth, sizeof *truth, PROT_READ | PROT_WRITE, flags | (truth ? MAP_FIXED : 0), fd, 0);
	if (at == MAP_FAILED)
		die("map the truth");
	if (fd >= 0)
		close(fd);
	truth = at;
	truth->version = STUB_TRUTH_VERSION;
	truth->pid = (uint32_t)getpid();
	truth->calls_n = CALLS_N;
	for (int i = 0; i < CALLS_N; i++)
		strcpy(truth->calls[i].symbol, call_names[i]);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(truth->magic, "GPUTRUTH", sizeof truth->magic);
}

static void start(void)
{
	truth_open();
	device_reset();
	context_reset();
	name_reset();
	capture_reset();
	graph_reset();
	sync_reset();
	memory_reset();
}

__attribute__((constructor)) static void load(void)
{
	start();
	if (pthread_atfork(NULL, NULL, start))
		die("pthread_atfork");
}

API void stubForked(void)
{
	keep_frame();
	start();
}

API const struct stub_truth *stubTruth(void)
{
	keep_frame();
	return truth;
}
