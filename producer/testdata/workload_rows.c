// workload_rows.c: runs rows, each in its own thread. Every second row uses the second device.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "workload_rows.h"

extern const struct row_definition *const __start_rows[], *const __stop_rows[];

struct row row;

static char line[8192];
static size_t line_n;
static bool called;
static CUresult refused_with;
static uint64_t from;

static CUlibrary library;
static CUcontext contexts[STUB_DEVICES];

uint64_t boot_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t value(int k)
{
	uint64_t x = ((uint64_t)row.number * 64 + (uint64_t)k + 1) * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	for (int i = 0; i < 64; i += 8)
		if (!(x >> i & 0xff))
			x |= 0x5aull << i;
	return x;
}

uint64_t amount(int k)
{
	return (value(k) & 0x7ffffffffull) | 1ull << 32;
}

void say(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line + line_n, sizeof line - line_n, format, args);
	va_end(args);
	if (n < 0 || line_n + (size_t)n >= sizeof line)
		fail("the line of %s is too long", row.symbol);
	line_n += (size_t)n;
}

void say_token(const CUtoken *token)
{
	say("token=");
	for (int i = 0; i < 8; i++)
		say("%s%#llx", i ? "," : "", OUT(token->words[i]));
	say(" ");
}

void call_begins(void)
{
	if (called)
		fail("%s is called twice", row.symbol);
	called = true;
	if (row.fail)
		stubRefuseNext(refused_with);
	from = boot_ns();
}

void call_returned(CUresult got)
{
	uint64_t until = boot_ns();
	returned(row.symbol, got, row.fail ? refused_with : CUDA_SUCCESS);
	say("from=%lu until=%lu device=%d context=%#lx result=%d ", from, until, row.device, (uintptr_t)row.context, got);
}

CUlibrary row_library(void)
{
	return library;
}

const char *row_kernel_name(void)
{
	static char name[96];
	snprintf(name, sizeof name, "row_%s%s", row.symbol, row.variant);
	return name;
}

CUfunction kernel_named(const char *name)
{
	CUkernel kernel;
	OK(cuLibraryGetKernel(&kernel, library, name));
	return (CUfunction)kernel;
}

CUfunction row_kernel(void)
{
	return kernel_named(row_kernel_name());
}

int high_descriptor(int fd)
{
	int to = (int)must("fcntl", fcntl(fd, F_DUPFD, 300 + row.number % 200));
	close(fd);
	return to;
}

CUcontext row_context(int device)
{
	return contexts[device];
}

static void *row_thread(void *definition)
{
	const struct row_definition *d = definition;
	char comm[16];
	snprintf(comm, sizeof comm, "row %d", row.number);
	pthread_setname_np(pthread_self(), comm);
	OK(cuCtxSetCurrent(row.context));
	line_n = 0;
	called = false;
	refused_with = 0x10000 + row.number;
	say("%s variant=%s number=%d pid=%d tid=%ld comm=row_%d ", row.symbol, row.variant, row.number, getpid(),
	    syscall(SYS_gettid), row.number);
	d->run();
	if (!called)
		fail("%s was not called", row.symbol);
	puts(line);
	return NULL;
}

static void run(const struct row_definition *d, bool failing)
{
	static int number;
	number++;
	row = (struct row){
		.symbol = d->symbol, .variant = failing ? "fail" : d->variant, .fail = failing, .number = number,
		.device = number % STUB_DEVICES, .context = contexts[number % STUB_DEVICES],
	};
	uint64_t bytes = stubTruth()->live_bytes, host_bytes = stubTruth()->host_live_bytes;
	pthread_t thread;
	if (pthread_create(&thread, NULL, row_thread, (void *)d))
		fail("pthread_create");
	join_thread(thread);
	if (stubTruth()->live_bytes != bytes || stubTruth()->host_live_bytes != host_bytes)
		fail("%s left %ld bytes and %ld bytes of the host", d->symbol, stubTruth()->live_bytes - bytes,
		     stubTruth()->host_live_bytes - host_bytes);
}

static const char image[] = "stub image";

static void open_rows(bool uuids)
{
	OK(cuInit(0));
	for (int i = 0; i < STUB_DEVICES; i++) {
		CUuuid uuid;
		if (uuids)
			OK(cuDeviceGetUuid(&uuid, i));
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
	}
	OK(cuCtxSetCurrent(contexts[0]));
	OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
}

// Runs the rows of one symbol. If the row itself reveals the UUID of a device, no
// other call does.
void one_row(void)
{
	if (!options.function)
		fail("row needs a FUNCTION; see --help");
	int n = 0;
	open_rows(strncmp(options.function, "cuDeviceGet", 11) != 0);
	for (const struct row_definition *const *d = __start_rows; d < __stop_rows; d++) {
		if (strcmp((*d)->symbol, options.function) != 0)
			continue;
		n++;
		if (!options.refuse)
			run(*d, false);
		else if ((*d)->can_fail)
			run(*d, true);
	}
	if (n == 0)
		fail("no row calls %s", options.function);
	fflush(stdout);
	step("done");
}

void all_rows(void)
{
	open_rows(true);
	for (const struct row_definition *const *d = __start_rows; d < __stop_rows; d++) {
		run(*d, false);
		if ((*d)->can_fail)
			run(*d, true);
	}
	fflush(stdout);
	step("done");
}
