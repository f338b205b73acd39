// workload_load.c: many calls, as fast as possible, at a fixed rate, or timed.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "workload.h"

enum { NS = 1000000000 };

struct worker {
	pthread_t thread;
	int number;
	uint64_t calls; // calls made
	uint64_t total; // calls to make
	double ns_per_call;
};

static struct kernels kernels;
static pthread_barrier_t line; // workers and main wait here for the start

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static void launch(CUfunction f)
{
	OK(cuLaunchKernel(f, 1024, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
}

static int online_cpus(void)
{
	return (int)must("sysconf", sysconf(_SC_NPROCESSORS_ONLN));
}

static double seconds(void)
{
	return options.seconds > 0 ? options.seconds : 10;
}

// run_workers starts all workers together and waits for all of them. It returns the nanoseconds between.
static uint64_t run_workers(struct worker *workers, int n, void *(*body)(void *))
{
	pthread_barrier_init(&line, NULL, (unsigned)n + 1);
	for (int i = 0; i < n; i++) {
		workers[i].number = i;
		workers[i].thread = start_thread(NULL, body, &workers[i]);
	}
	step("ready");
	uint64_t start = now_ns();
	meet(&line);
	for (int i = 0; i < n; i++)
		join_thread(workers[i].thread);
	return now_ns() - start;
}

static struct worker *make_workers(int n)
{
	struct worker *w = calloc((size_t)n, sizeof *w);
	if (!w)
		fail("no memory");
	return w;
}

static void report_calls(const struct worker *workers, int n, uint64_t ns)
{
	uint64_t calls = 0;
	for (int i = 0; i < n; i++)
		calls += workers[i].calls;
	printf("calls %lu seconds %.3f\n", calls, (double)ns / NS);
	fflush(stdout);
	step("done");
}

static atomic_bool storm_over;

static void *storm_watch(void *arg)
{
	(void)arg;
	meet(&line);
	uint64_t wait = (uint64_t)(seconds() * NS);
	struct timespec t = { .tv_sec = (time_t)(wait / NS), .tv_nsec = (long)(wait % NS) };
	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
	atomic_store(&storm_over, true);
	return NULL;
}

static void *storm_launch(struct worker *w)
{
	meet(&line);
	while (!atomic_load_explicit(&storm_over, memory_order_relaxed)) {
		for (int i = 0; i < 500; i++) {
			launch(kernels.add);
			launch(kernels.mul);
		}
		w->calls += 1000;
		if (w->number == 0) {
			release(allocate(1 * MB));
			w->calls += 2;
		}
	}
	return NULL;
}

// The last worker measures the time.
static void *storm_body(void *arg)
{
	struct worker *w = arg;
	return w->number == threads_or(online_cpus()) ? storm_watch(w) : storm_launch(w);
}

void storm(void)
{
	int n = threads_or(online_cpus()) + 1;
	struct worker *workers = make_workers(n);
	open_gpu();
	kernels = load_kernels();
	uint64_t ns = run_workers(workers, n, storm_body);
	report_calls(workers, n, ns);
	free(workers);
}

// rate_call makes the i-th call. Even calls allocate, odd calls free.
static void rate_call(uint64_t i, CUdeviceptr *held)
{
	if (options.launches)
		launch(i % 2 ? kernels.mul : kernels.add);
	else if (options.keep)
		allocate(4 * KB);
	else if (i % 2)
		release(*held);
	else
		*held = allocate(1 * MB);
}

// Each millisecond the worker makes the calls that are due. A late worker does not pause, and makes all calls.
static void *rate_body(void *arg)
{
	struct worker *w = arg;
	CUdeviceptr held = 0;
	uint64_t ticks = (uint64_t)(seconds() * 1000);
	meet(&line);
	uint64_t start = now_ns();
	for (uint64_t tick = 1; tick <= ticks; tick++) {
		uint64_t due = (uint64_t)((double)w->total * (double)tick / (double)ticks);
		if (tick == ticks)
			due = w->total;
		if (due == w->calls)
			continue;
		uint64_t wake = start + tick * (NS / 1000);
		struct timespec t = { .tv_sec = (time_t)(wake / NS), .tv_nsec = (long)(wake % NS) };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		for (; w->calls < due; w->calls++)
			rate_call(w->calls, &held);
	}
	return NULL;
}

void rate(void)
{
	int n = threads_or(1);
	struct worker *workers = make_workers(n);
	uint64_t pairs = (uint64_t)((options.rate > 0 ? options.rate : 4000) * seconds() / 2);
	open_gpu();
	kernels = load_kernels();
	for (int i = 0; i < n; i++) // whole pairs, so that nothing is live at the end
		workers[i].total = 2 * (pairs / (uint64_t)n + ((uint64_t)i < pairs % (uint64_t)n));
	uint64_t ns = run_workers(workers, n, rate_body);
	report_calls(workers, n, ns);
	free(workers);
}

static void bench_nop(long n)
{
	for (long i = 0; i < n; i++)
		stubNop(1, 2, 3, 4, 1); // as a report of PyTorch's allocator: 2 bytes on device 0
}

static void bench_launch(long n)
{
	for (long i = 0; i < n; i++)
		launch(kernels.add);
}

static void bench_alloc(long n)
{
	for (long i = 0; i < n; i++)
		release(allocate(1 * MB));
}

static void bench_copy(long n)
{
	for (long i = 0; i < n; i++)
		OK(cuMemcpyHtoD_v2(0, NULL, 0));
}

static const struct {
	const char *name;
	int calls; // traced calls in one round
	void (*run)(long n);
} benches[] = {
	{ "nop", 1, bench_nop },
	{ "launch", 1, bench_launch },
	{ "alloc", 2, bench_alloc },
	{ "copy", 1, bench_copy },
};

enum { BENCHES_N = sizeof benches / sizeof *benches };

static int bench_chosen;

static void *bench_body(void *arg)
{
	struct worker *w = arg;
	long n = count_or(1000000);
	pin(w->number);
	meet(&line);
	uint64_t start = now_ns();
	benches[bench_chosen].run(n);
	w->ns_per_call = (double)(now_ns() - start) / (double)(n * benches[bench_chosen].calls);
	return NULL;
}

void bench(void)
{
	int n = threads_or(1);
	if (!options.function)
		fail("bench needs a FUNCTION; see --help");
	while (bench_chosen < BENCHES_N && strcmp(options.function, benches[bench_chosen].name))
		bench_chosen++;
	if (bench_chosen == BENCHES_N)
		fail("unknown function %s; see --help", options.function);
	struct worker *workers = make_workers(n);
	open_gpu();
	kernels = load_kernels();
	run_workers(workers, n, bench_body);
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += workers[i].ns_per_call;
	printf("ns_per_call %.1f\n", sum / n);
	free(workers);
}
