// workload.h: declarations shared by the scenarios. To add a scenario, add a row to scenarios in workload.c.
#ifndef GPUTAP_WORKLOAD_H
#define GPUTAP_WORKLOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "stub.h"

#define KB 1024ull
#define MB (1024 * KB)

// Mangled by nvcc: vectorAdd and vectorMul (float const *, float const *, float *, int).
#define VECTOR_ADD "_Z9vectorAddPKfS0_Pfi"
#define VECTOR_MUL "_Z9vectorMulPKfS0_Pfi"

// 0 = not set: the scenario uses its default.
struct options {
	const char *scenario;
	const char *function; // of bench and row
	bool steps, launches, keep;
	bool refuse; // of row
	double seconds;
	double rate; // calls per second, all threads together
	int threads;
	long count;
};

extern struct options options;

long count_or(long standard);
int threads_or(int standard);

// An unexpected result ends the process with a message on stderr and exit status 1.
_Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...);
void returned(const char *call, CUresult got, CUresult want);
#define OK(call) returned(#call, call, CUDA_SUCCESS)
#define FAILS(code, call) returned(#call, call, code)

// must ends the process with errno if a system or libc call returned -1. Otherwise it returns the value.
long must(const char *what, long rc);

// step marks a point in the scenario. With --steps it prints `step NAME` and waits for a line or the end of stdin.
void step(const char *name);

// live checks the live device memory of this process that the stub counts.
void live(uint64_t bytes, uint64_t allocations);

// open_gpu initialises CUDA, as every program does, and makes the context of device 0 current.
void open_gpu(void);

CUdeviceptr allocate(uint64_t bytes);
void release(CUdeviceptr dptr);

// start_thread makes the context of device 0 current. With a NULL name the thread keeps the name of the process.
pthread_t start_thread(const char *name, void *(*body)(void *), void *arg);
void join_thread(pthread_t thread);
void meet(pthread_barrier_t *barrier);
// pin binds this thread to one of its allowed CPUs. Consecutive numbers get different CPUs if there are two.
void pin(int number);

// The two kernels: add came through cuLibraryGetKernel, mul through cuModuleGetFunction.
struct kernels {
	CUfunction add, mul;
};
struct kernels load_kernels(void);

// A child reports that it is ready and waits. The parent waits for the report and then releases the child.
struct rendezvous {
	int ready[2], go[2];
};
struct rendezvous rendezvous_open(void);
void child_ready(struct rendezvous *r);
void await_child(struct rendezvous *r);
void release_child(struct rendezvous *r);
void await_exit(pid_t pid);

// workload_listings.c
void leak3(void);
void train(void);
void procs4(void);
void threads5(void);
void anomaly(void);

// workload_calls.c
void launches(void);
void copies(void);
void expandable(void);
void every(void);
void later(void);
void renamed(void);

// workload_hard.c
void hard_free_unknown(void);
void hard_free_null(void);
void hard_alloc_fail(void);
void hard_free_fail(void);
void hard_realloc(void);
void hard_race(void);
void hard_fork(void);
void hard_exec(void);
void hard_exec_second(void);
void hard_rename(void);
void hard_pidreuse(void);
void hard_late(void);
void hard_kill(void);

// workload_memory_life.c
void life_contexts(void);
void life_green(void);
void life_arrays(void);
void life_pools(void);
void life_vmm(void);
void life_graphs(void);
void life_modules(void);
void life_nested(void);
void life_captures(void);
void life_captures_second(void);

// workload_memory_shared.c
void shared_ipc(void);
void shared_vmm(void);
void shared_pool(void);
void shared_external(void);

// workload_confined.c
void confined(void);

// workload_rows.c
void one_row(void);
void all_rows(void);

// workload_devices.c
void visible(void);
void two_devices(void);
void late_kernels(void);
void asks(void);
void again_elsewhere(void);

// workload_fault.c
void killed(void);
void many_captured(void);
void crowd(void);

// workload_tensors.c
void tensors(void);
void tensors_late(void);
// workload_gaps.c
void gaps(void);

// workload_load.c
void storm(void);
void rate(void);
void bench(void);

#endif
