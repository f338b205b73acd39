// workload_hard.c: programs that are hard to trace correctly.
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload.h"

void hard_free_unknown(void)
{
	open_gpu();
	CUdeviceptr d = allocate(1 * MB), freed = allocate(2 * MB);
	release(freed);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x1234));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(d + 512));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(freed));
	live(1 * MB, 1);
	step("live");
}

void hard_free_null(void)
{
	open_gpu();
	allocate(1 * MB);
	for (int i = 0; i < 3; i++)
		release(0);
	live(1 * MB, 1);
	step("live");
}

void hard_alloc_fail(void)
{
	CUdeviceptr d = 0xdead;
	open_gpu();
	allocate(1 * MB);
	stubFailNextAlloc(CUDA_ERROR_OUT_OF_MEMORY);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&d, 2 * MB));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&d, 1ull << 60));
	if (d != 0xdead)
		fail("a failed allocation wrote an address");
	allocate(4 * MB);
	live(5 * MB, 2);
	step("live");
}

void hard_free_fail(void)
{
	open_gpu();
	CUdeviceptr d = allocate(1 * MB);
	allocate(2 * MB);
	stubFailNextFree(CUDA_ERROR_INVALID_VALUE);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(d));
	live(3 * MB, 2);
	step("live");
	release(d);
	live(2 * MB, 1);
	step("freed");
}

void hard_realloc(void)
{
	open_gpu();
	CUdeviceptr d = allocate(8 * MB); // the later allocations fit into it, so they overlap no other block
	allocate(2 * MB);
	for (uint64_t bytes = 3 * MB; bytes <= 4 * MB; bytes += MB) {
		stubNextAddress(d);
		if (allocate(bytes) != d)
			fail("not the live address");
	}
	live(6 * MB, 2);
	step("live");
	release(d);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(d));
	live(2 * MB, 1);
	step("freed");
}

enum { RACE_LINGER_NS = 50000 }; // a traced allocation takes a few µs

static CUdeviceptr race_block;
static atomic_long race_round; // rounds started
static atomic_long race_given; // rounds in which the other thread got the address

// Spins for about a millisecond before it yields. On a busy machine each yield costs a time slice, and 10000 of them
// take a minute.
static void await_at_least(atomic_long *value, long n)
{
	enum { SPINS = 1000000 };
	for (long i = 1; atomic_load(value) < n; i++)
		if (i % SPINS == 0)
			sched_yield();
}

// Allocates the address as soon as the stub counts it as free, before cuMemFree_v2 has returned.
static void *race_taker(void *arg)
{
	const uint64_t *live_now = &stubTruth()->live_allocations;
	(void)arg;
	pin(1);
	for (long i = 1; i <= count_or(10000); i++) {
		await_at_least(&race_round, i);
		while (__atomic_load_n(live_now, __ATOMIC_RELAXED))
			;
		if (allocate(1 * MB) != race_block)
			fail("round %ld: got a different address", i);
		atomic_store(&race_given, i);
	}
	return NULL;
}

void hard_race(void)
{
	long raced = 0;
	open_gpu();
	race_block = allocate(1 * MB);
	pthread_t taker = start_thread("taker", race_taker, NULL); // before pin, because threads inherit the binding
	pin(0);
	stubFreeLinger(RACE_LINGER_NS);
	for (long i = 1; i <= count_or(10000); i++) {
		atomic_store(&race_round, i);
		release(race_block);
		raced += atomic_load(&race_given) == i;
		await_at_least(&race_given, i);
	}
	join_thread(taker);
	live(1 * MB, 1);
	if (!raced)
		fail("no address was reused before its free returned; this needs two CPUs");
	printf("raced %ld of %ld\n", raced, count_or(10000));
	fflush(stdout);
	step("live");
}

void hard_fork(void)
{
	open_gpu();
	CUdeviceptr first = allocate(4 * MB), second = allocate(8 * MB);
	struct rendezvous r = rendezvous_open();
	pid_t pid = (pid_t)must("fork", fork());
	if (pid == 0) {
		open_gpu();
		if (allocate(4 * MB) != first) // one address, live in two processes
			fail("the child's first address is not its parent's");
		FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(second));
		live(4 * MB, 1);
		child_ready(&r);
		exit(0);
	}
	await_child(&r);
	live(12 * MB, 2);
	step("live");
	release_child(&r);
	await_exit(pid);
	step("child-gone");
	release(first);
	release(second);
	live(0, 0);
	step("freed");
}

void hard_exec(void)
{
	open_gpu();
	for (uint64_t mb = 1; mb <= 3; mb++)
		allocate(mb * MB);
	live(6 * MB, 3);
	step("live");
	must("exec", execl("/proc/self/exe", "workload", "hard-exec-second", options.steps ? "--steps" : NULL, NULL));
}

static void *free_it(void *arg)
{
	release((CUdeviceptr)arg);
	return NULL;
}

void hard_rename(void)
{
	open_gpu();
	CUdeviceptr first = allocate(1 * MB);
	allocate(2 * MB);
	live(3 * MB, 2);
	step("live");
	pthread_setname_np(pthread_self(), "renamed");
	join_thread(start_thread("worker", free_it, (void *)first));
	live(2 * MB, 1);
	step("freed");
}

void hard_exec_second(void)
{
	open_gpu();
	allocate(5 * MB);
	live(5 * MB, 1);
	step("second");
}

static void hold_one(uint64_t bytes, struct rendezvous *r)
{
	open_gpu();
	allocate(bytes);
	live(bytes, 1);
	child_ready(r);
	exit(0);
}

// clone3 with set_tid needs Linux 5.5 and CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
static pid_t fork_as(pid_t pid)
{
	uint64_t wanted = (uint64_t)pid; // read as one pid_t: little endian
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1 };
	long rc = syscall(SYS_clone3, &args, sizeof args);
	if (rc == 0)
		stubForked();
	if (rc < 0) {
		fprintf(stderr, "workload hard-pidreuse: clone3 with set_tid: %s\n", strerror(errno));
		exit(77);
	}
	return (pid_t)rc;
}

void hard_pidreuse(void)
{
	struct rendezvous r = rendezvous_open();
	pid_t pid = (pid_t)must("fork", fork());
	if (pid == 0)
		hold_one(1 * MB, &r);
	await_child(&r);
	step("first");
	release_child(&r);
	await_exit(pid);

	r = rendezvous_open();
	pid_t again = fork_as(pid);
	if (again == 0)
		hold_one(2 * MB, &r);
	if (again != pid)
		fail("the second child has pid %d, not %d", again, pid);
	await_child(&r);
	step("live");
	release_child(&r);
	await_exit(again);
}

void hard_late(void)
{
	CUdeviceptr d[4];
	open_gpu();
	for (int i = 0; i < 4; i++)
		d[i] = allocate((uint64_t)(i + 1) * MB);
	step("attached");
	release(d[0]);
	release(d[1]);
	allocate(16 * MB);
	live(23 * MB, 3);
	step("live");
}

void hard_kill(void)
{
	open_gpu();
	allocate(1 * MB);
	allocate(2 * MB);
	live(3 * MB, 2);
	step("live");
	raise(SIGKILL);
}
