// workload.c: a CUDA program that runs one scenario with known calls. --help lists its scenarios and options.
//
// It is linked to the stub library, which counts the calls.
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

struct options options;

static const struct {
	const char *name, *steps, *does;
	void (*run)(void);
} scenarios[] = {
	{ "leak3", "allocated freed", "allocate 3 x 8 MB, free 2", leak3 },
	{ "train", "live freed", "10 blocks on 2 threads, 70.25 MB; one freed by the other thread, 54.25 MB", train },
	{ "procs4", "live", "4 processes that hold 42.13, 82.13, 52.13 and 62.13 MB", procs4 },
	{ "threads5", "first second", "5 threads that hold 102 MB, then 142 MB", threads5 },
	{ "anomaly", "live", "4 threads keep 4 x 10 MB each; one takes 2096 MB at iteration 5", anomaly },
	{ "launches", "done", "--count (1000) iterations of 2 kernels", launches },
	{ "copies", "done", "40 x 8 MB HtoD, 40 x 8 MB DtoH, 10 x 8 MB DtoD, 20 x 1 MB HtoD asynchronous", copies },
	{ "expandable", "live half end", "PyTorch's expandable segments: 64 MB mapped, then 42, then 22", expandable },
	{ "every", "live freed", "every CUDA function of ordinary programs at least once", every },
	{ "hard-free-unknown", "live", "free addresses that were never allocated, and one twice", hard_free_unknown },
	{ "hard-free-null", "live", "free address 0", hard_free_null },
	{ "hard-alloc-fail", "live", "allocations that fail: out of memory", hard_alloc_fail },
	{ "hard-free-fail", "live freed", "a free that fails and leaves its block live", hard_free_fail },
	{ "hard-realloc", "live freed", "an allocation over a live address, twice", hard_realloc },
	{ "hard-race", "live", "--count (10000) times an address is reused before its free returned", hard_race },
	{ "hard-fork", "live child-gone freed", "a forked child holds its own block and frees its parent's", hard_fork },
	{ "hard-exec", "live second", "3 blocks are lost by exec; the new image allocates 1", hard_exec },
	{ "hard-exec-second", "second", "the program that hard-exec executes", hard_exec_second },
	{ "hard-rename", "live freed", "main allocates 2 blocks; a thread that starts after a rename frees 1",
	  hard_rename },
	{ "hard-pidreuse", "first live",
	  "two processes with one pid, one after the other (exit 77: not permitted)", hard_pidreuse },
	{ "hard-late", "attached live", "4 blocks before the tracer attaches, then 2 freed and 1 more", hard_late },
	{ "hard-kill", "live", "2 blocks, then SIGKILL", hard_kill },
	{ "life-contexts", "live destroyed reset one-user-left released again",
	  "memory of 2 contexts that end in 3 ways", life_contexts },
	{ "life-green", "live destroyed released ended", "memory of green contexts", life_green },
	{ "life-arrays", "live half again", "arrays and mipmapped arrays", life_arrays },
	{ "life-pools", "live destroyed freed", "pools and CUDA streams of a device that is not current", life_pools },
	{ "life-vmm", "live held retained gone", "physical memory with several references and mappings", life_vmm },
	{ "life-graphs", "ready launched again destroyed freed", "memory that graphs allocate", life_graphs },
	{ "life-modules", "done", "kernel handles that are reused", life_modules },
	{ "life-nested", "pushed popped", "push 12 contexts and pop them", life_nested },
	{ "life-captures", "ended second", "captures that end in an unusual way; then exec during one", life_captures },
	{ "life-captures-second", "second", "the program that life-captures executes", life_captures_second },
	{ "shared-ipc", "opened closed-once closed in-context context-gone kept",
	  "a child opens its parent's block", shared_ipc },
	{ "shared-vmm", "mapped half gone", "a child imports its parent's physical memory", shared_vmm },
	{ "shared-pool", "opened freed", "a child imports its parent's pool and a block of it", shared_pool },
	{ "shared-external", "mapped freed gone", "memory of another API", shared_external },
	{ "confined", "live", "10 x 8 MB, 5 freed, under a seccomp filter that is older than Linux 6.11", confined },
	{ "later", "mapped live", "1 block of 4 MB after the first step", later },
	{ "renamed", "before named", "1 block, then 1 as after-p; a thread before-t 1, then 1 as after-t", renamed },
	{ "row", "done", "one call of FUNCTION, described on stdout; with `fail` the call fails", one_row },
	{ "rows", "done", "one call of every probed function, and one that fails, each described on stdout", all_rows },
	{ "visible", "ready", "1 block on ordinal 0 of the devices in CUDA_VISIBLE_DEVICES", visible },
	{ "late-kernels", "attached live",
	  "kernels and a context before the tracer attaches; then 3 and 4 launches, and 2 blocks", late_kernels },
	{ "asks", "asked", "look up driver functions: probed, not probed, not exported, foreign, unknown; 2 tables", asks },
	{ "again-elsewhere", "done",
	  "2 contexts with one handle, on ordinal 0 and then 1, with launches in each", again_elsewhere },
	{ "two-devices", "ready", "two processes whose ordinals 0 are different cards", two_devices },
	{ "tensors", "mapped live freed unloaded",
	  "--threads (4) take and return --count (1000) blocks of PyTorch's allocator each, on 2 devices", tensors },
	{ "tensors-late", "allocated live", "3 such blocks before the tracer attaches, then 1 returned and 1 taken",
	  tensors_late },
	{ "gaps", "done",
	  "--count (200) times a copy, a wait and a launch, with bounds of the times between them", gaps },
	{ "storm", "ready done", "--threads (all CPUs) launch as fast as they can for --seconds (10)", storm },
	{ "rate", "ready done", "--rate (4000) calls a second for --seconds (10): allocate and free", rate },
	{ "killed", "", "kill --count (10000) processes, one after the other, inside a call", killed },
	{ "many-captured", "done",
	  "--count (20000) CUDA events and 1000 launches in a capture, 1000 launches outside it", many_captured },
	{ "crowd", "ready done",
	  "--count (1000) processes, --rate (4) calls a second each, for --seconds (10): allocate and free", crowd },
	{ "bench", "ready", "FUNCTION = nop, launch, alloc (and free) or copy, --count (1000000) times a thread", bench },
};

enum { SCENARIOS_N = sizeof scenarios / sizeof *scenarios };

static void help(FILE *to)
{
	fputs("usage: workload SCENARIO [OPTION...]\n"
	      "       workload bench FUNCTION [OPTION...]\n"
	      "       workload row FUNCTION [fail] [OPTION...]\n\n"
	      "  --steps      at each step print `step NAME` and wait for a line on stdin\n"
	      "  --seconds N  --threads N  --rate N  --count N\n"
	      "  --launches   rate: launch kernels instead\n"
	      "  --keep       rate: allocate only, free nothing\n\n"
	      "scenarios (steps):\n",
	      to);
	for (int i = 0; i < SCENARIOS_N; i++)
		fprintf(to, "  %-18s %s (%s)\n", scenarios[i].name, scenarios[i].does, scenarios[i].steps);
}

void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "workload %s: ", options.scenario ? options.scenario : "");
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

void returned(const char *call, CUresult got, CUresult want)
{
	if (got != want)
		fail("%s returned %d, not %d", call, got, want);
}

long must(const char *what, long rc)
{
	if (rc == -1)
		fail("%s: %s", what, strerror(errno));
	return rc;
}

long count_or(long standard)
{
	return options.count ? options.count : standard;
}

int threads_or(int standard)
{
	return options.threads ? options.threads : standard;
}

// Reads are unbuffered, because the next image of hard-exec reads the following lines.
void step(const char *name)
{
	if (!options.steps)
		return;
	printf("step %s\n", name);
	fflush(stdout);
	char c;
	while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
		;
}

void live(uint64_t bytes, uint64_t allocations)
{
	const struct stub_truth *t = stubTruth();
	if (t->live_bytes != bytes || t->live_allocations != allocations)
		fail("%lu bytes in %lu allocations are live, not %lu in %lu", t->live_bytes, t->live_allocations, bytes,
		     allocations);
}

static CUcontext context;

void open_gpu(void)
{
	int n;
	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	if (n != STUB_DEVICES)
		fail("%d devices", n);
	for (int i = 0; i < n; i++) {
		CUdevice device;
		CUuuid uuid;
		OK(cuDeviceGet(&device, i));
		OK(cuDeviceGetUuid(&uuid, device));
	}
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
}

CUdeviceptr allocate(uint64_t bytes)
{
	CUdeviceptr dptr;
	OK(cuMemAlloc_v2(&dptr, bytes));
	return dptr;
}

void release(CUdeviceptr dptr)
{
	OK(cuMemFree_v2(dptr));
}

struct kernels load_kernels(void)
{
	static const char image[] = "stub image";
	CUlibrary library;
	CUmodule module;
	CUkernel add;
	struct kernels k;
	OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&add, library, VECTOR_ADD));
	OK(cuModuleLoadData(&module, image));
	OK(cuModuleGetFunction(&k.mul, module, VECTOR_MUL));
	k.add = (CUfunction)add; // cudart launches the CUkernel itself
	return k;
}

struct thread_start {
	const char *name;
	void *(*body)(void *);
	void *arg;
};

static void *thread_main(void *arg)
{
	struct thread_start s = *(struct thread_start *)arg;
	free(arg);
	if (s.name)
		pthread_setname_np(pthread_self(), s.name);
	OK(cuCtxSetCurrent(context));
	return s.body(s.arg);
}

pthread_t start_thread(const char *name, void *(*body)(void *), void *arg)
{
	struct thread_start *s = malloc(sizeof *s);
	pthread_t thread;
	if (!s)
		fail("no memory");
	*s = (struct thread_start){ .name = name, .body = body, .arg = arg };
	int rc = pthread_create(&thread, NULL, thread_main, s);
	if (rc)
		fail("pthread_create: %s", strerror(rc));
	return thread;
}

void join_thread(pthread_t thread)
{
	int rc = pthread_join(thread, NULL);
	if (rc)
		fail("pthread_join: %s", strerror(rc));
}

void meet(pthread_barrier_t *barrier)
{
	int rc = pthread_barrier_wait(barrier);
	if (rc && rc != PTHREAD_BARRIER_SERIAL_THREAD)
		fail("pthread_barrier_wait: %s", strerror(rc));
}

void pin(int number)
{
	cpu_set_t allowed, one;
	must("sched_getaffinity", sched_getaffinity(0, sizeof allowed, &allowed));
	int skip = number % CPU_COUNT(&allowed);
	int cpu = 0;
	while (!CPU_ISSET(cpu, &allowed) || skip-- > 0)
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	must("sched_setaffinity", sched_setaffinity(0, sizeof one, &one));
}

struct rendezvous rendezvous_open(void)
{
	struct rendezvous r;
	must("pipe", pipe(r.ready));
	must("pipe", pipe(r.go));
	return r;
}

static void await_byte(int fd, const char *from)
{
	char c;
	if (must("read", read(fd, &c, 1)) != 1)
		fail("the %s has ended", from);
}

// A child dies with its parent. Otherwise it would wait forever, because its siblings too hold the parent's ends of its
// pipes.
void child_ready(struct rendezvous *r)
{
	must("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
	close(r->ready[0]);
	close(r->go[1]);
	must("write", write(r->ready[1], "", 1));
	await_byte(r->go[0], "parent");
}

void await_child(struct rendezvous *r)
{
	close(r->ready[1]);
	close(r->go[0]);
	await_byte(r->ready[0], "child");
}

void release_child(struct rendezvous *r)
{
	must("write", write(r->go[1], "", 1));
	close(r->go[1]);
	close(r->ready[0]);
}

void await_exit(pid_t pid)
{
	int status;
	must("waitpid", waitpid(pid, &status, 0));
	if (status)
		fail("child %d ended with status 0x%x", pid, status);
}

static void parse(int argc, char **argv)
{
	static const struct option known[] = {
		{ "steps", no_argument, NULL, 's' },	   { "seconds", required_argument, NULL, 'S' },
		{ "threads", required_argument, NULL, 't' }, { "rate", required_argument, NULL, 'r' },
		{ "count", required_argument, NULL, 'c' },   { "launches", no_argument, NULL, 'l' },
		{ "keep", no_argument, NULL, 'k' },	   { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
		switch (c) {
		case 's': options.steps = true; break;
		case 'S': options.seconds = atof(optarg); break;
		case 't': options.threads = atoi(optarg); break;
		case 'r': options.rate = atof(optarg); break;
		case 'c': options.count = atol(optarg); break;
		case 'l': options.launches = true; break;
		case 'k': options.keep = true; break;
		case 'h': help(stdout); exit(0);
		default: help(stderr); exit(2);
		}
	}
	if (optind < argc)
		options.scenario = argv[optind++];
	if (optind < argc)
		options.function = argv[optind++];
	if (optind < argc && strcmp(argv[optind], "fail") == 0) {
		options.refuse = true;
		optind++;
	}
	if (!options.scenario || optind < argc || options.seconds < 0 || options.threads < 0 || options.rate < 0 ||
	    options.count < 0) {
		help(stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	for (int i = 0; i < SCENARIOS_N; i++) {
		if (strcmp(options.scenario, scenarios[i].name) == 0) {
			scenarios[i].run();
			return 0;
		}
	}
	fprintf(stderr, "workload: no scenario %s\n", options.scenario);
	return 2;
}
