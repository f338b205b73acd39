// workload_fault.c: programs that are killed, and very many programs.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "workload.h"

// A page without write permission. A call that writes its result there faults, and stop_here runs before it returns.
static CUdeviceptr *trap;

static void stop_here(int signal)
{
	(void)signal;
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static void *enter_and_die(void *arg)
{
	(void)arg;
	cuMemAlloc_v2(trap, 1 * MB);
	fail("the call returned");
}

// The i-th victim dies inside a call: some in two threads at once, some during a capture.
static void die_inside(long i)
{
	open_gpu();
	if (i % 4 == 0) {
		for (int n = 0; n < 3; n++) {
			CUstream stream;
			OK(cuStreamCreate(&stream, 0));
			OK(cuStreamBeginCapture_v2(stream, 0));
		}
	}
	if (i % 8 == 0)
		start_thread(NULL, enter_and_die, NULL);
	enter_and_die(NULL);
}

void killed(void)
{
	struct sigaction action = { .sa_handler = stop_here };
	must("sigaction", sigaction(SIGSEGV, &action, NULL));
	trap = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (trap == MAP_FAILED)
		fail("no memory");
	for (long i = 0; i < count_or(10000); i++) {
		pid_t pid = (pid_t)must("fork", fork());
		if (pid == 0)
			die_inside(i);
		int status;
		must("waitpid", waitpid(pid, &status, 0));
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			fail("child %ld ended with status 0x%x", i, status);
	}
}

enum { OUTSIDE = 1000 }; // launches outside the capture

void many_captured(void)
{
	CUstream captured, apart;
	CUgraph graph;
	open_gpu();
	struct kernels k = load_kernels();
	OK(cuStreamCreate(&captured, 0));
	OK(cuStreamCreate(&apart, 0));
	OK(cuStreamBeginCapture_v2(captured, 0));
	for (long i = 0; i < count_or(20000); i++) {
		CUevent event;
		OK(cuEventCreate(&event, 0));
		OK(cuEventRecord(event, captured));
		OK(cuEventDestroy_v2(event));
		if (i % (count_or(20000) / OUTSIDE) == 0) {
			OK(cuLaunchKernel(k.add, 1, 1, 1, 1, 1, 1, 0, apart, NULL, NULL));
			OK(cuLaunchKernel(k.mul, 1, 1, 1, 1, 1, 1, 0, captured, NULL, NULL));
		}
	}
	OK(cuStreamEndCapture(captured, &graph));
	step("done");
}

static void doze(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
	nanosleep(&t, NULL);
}

// One process of crowd allocates and frees, --rate calls a second, for --seconds.
static void one_of(long i, struct rendezvous *r)
{
	double rate = options.rate > 0 ? options.rate : 4, seconds = options.seconds > 0 ? options.seconds : 10;
	must("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
	open_gpu();
	close(r->go[1]);
	must("write", write(r->ready[1], "", 1));
	char c;
	(void)!read(r->go[0], &c, 1); // returns when the pipe is closed
	uint64_t pause = (uint64_t)(2e9 / rate);
	doze(pause / (uint64_t)count_or(1000) * (uint64_t)i);
	for (long n = (long)(rate * seconds / 2); n > 0; n--) {
		release(allocate(1 * MB));
		doze(pause);
	}
	exit(0);
}

void crowd(void)
{
	struct rendezvous r = rendezvous_open();
	for (long i = 0; i < count_or(1000); i++)
		if (must("fork", fork()) == 0)
			one_of(i, &r);
	for (long i = 0; i < count_or(1000); i++) {
		char c;
		must("read", read(r.ready[0], &c, 1));
	}
	step("ready");
	close(r.go[1]);
	for (long i = 0; i < count_or(1000); i++) {
		int status;
		must("wait", wait(&status));
		if (status)
			fail("a child ended with status 0x%x", status);
	}
	step("done");
}
