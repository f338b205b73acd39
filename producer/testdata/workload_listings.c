// workload_listings.c: programs that repeat published traces, block by block and with the same sizes.
#include <stdlib.h>
#include <unistd.h>

#include "workload.h"

enum { BLOCKS = 16 };

// allocate_all allocates a list that ends with 0.
static void allocate_all(const uint64_t *bytes, CUdeviceptr *dptrs)
{
	for (int i = 0; bytes[i]; i++) {
		CUdeviceptr dptr = allocate(bytes[i]);
		if (dptrs)
			dptrs[i] = dptr;
	}
}

void leak3(void)
{
	CUdeviceptr d[3];
	open_gpu();
	for (int i = 0; i < 3; i++)
		d[i] = allocate(8 * MB);
	live(25165824, 3);
	step("allocated");
	release(d[0]);
	release(d[1]);
	live(8388608, 1);
	step("freed");
}

static pthread_barrier_t train_barrier;

static void *train_autograd(void *block_of_main)
{
	allocate_all((const uint64_t[]){ 8 * MB, 128 * KB, 1 * KB, 0 }, NULL);
	meet(&train_barrier);
	meet(&train_barrier);
	release(*(CUdeviceptr *)block_of_main);
	meet(&train_barrier);
	meet(&train_barrier);
	return NULL;
}

void train(void)
{
	CUdeviceptr d[BLOCKS];
	open_gpu();
	allocate_all((const uint64_t[]){ 20 * MB, 16 * MB, 16 * MB, 8 * MB, 2 * MB, 128 * KB, 1 * KB, 0 }, d);
	pthread_barrier_init(&train_barrier, NULL, 2);
	pthread_t autograd = start_thread("pt_autograd_0", train_autograd, &d[2]);
	meet(&train_barrier);
	live(70 * MB + 258 * KB, 10);
	step("live");
	meet(&train_barrier);
	meet(&train_barrier);
	live(54 * MB + 258 * KB, 9);
	step("freed");
	meet(&train_barrier);
	join_thread(autograd);
}

void procs4(void)
{
	static const uint64_t blocks[4][BLOCKS] = {
		{ 20 * MB, 10 * MB, 8 * MB, 2 * MB, 2 * MB, 128 * KB, 1 * KB },
		{ 20 * MB, 20 * MB, 20 * MB, 10 * MB, 8 * MB, 2 * MB, 2 * MB, 128 * KB, 1 * KB },
		{ 20 * MB, 20 * MB, 8 * MB, 2 * MB, 2 * MB, 128 * KB, 1 * KB },
		{ 20 * MB, 20 * MB, 10 * MB, 8 * MB, 2 * MB, 2 * MB, 128 * KB, 1 * KB },
	};
	static const uint64_t total_mb[4] = { 42, 82, 52, 62 };
	static const uint64_t total_n[4] = { 7, 9, 7, 8 };
	struct rendezvous r[4];
	pid_t pids[4];
	for (int i = 0; i < 4; i++) {
		r[i] = rendezvous_open();
		pids[i] = (pid_t)must("fork", fork());
		if (pids[i] == 0) {
			open_gpu();
			allocate_all(blocks[i], NULL);
			live(total_mb[i] * MB + 129 * KB, total_n[i]);
			child_ready(&r[i]);
			exit(0);
		}
		await_child(&r[i]);
	}
	step("live");
	for (int i = 0; i < 4; i++) {
		release_child(&r[i]);
		await_exit(pids[i]);
	}
}

static pthread_barrier_t threads5_barrier;

struct threads5_blocks {
	uint64_t first[BLOCKS], second[BLOCKS];
};

static void *threads5_body(void *arg)
{
	const struct threads5_blocks *blocks = arg;
	allocate_all(blocks->first, NULL);
	meet(&threads5_barrier);
	meet(&threads5_barrier);
	allocate_all(blocks->second, NULL);
	meet(&threads5_barrier);
	meet(&threads5_barrier);
	return NULL;
}

void threads5(void)
{
	static struct threads5_blocks blocks[5] = {
		{ { 20 * MB, 20 * MB }, { 0 } },
		{ { 20 * MB }, { 0 } },
		{ { 0 }, { 20 * MB } },
		{ { 20 * MB, 2 * MB }, { 20 * MB } },
		{ { 20 * MB }, { 0 } },
	};
	pthread_t threads[5];
	open_gpu();
	pthread_barrier_init(&threads5_barrier, NULL, 6);
	for (int i = 0; i < 5; i++)
		threads[i] = start_thread(NULL, threads5_body, &blocks[i]);
	meet(&threads5_barrier);
	live(102 * MB, 6);
	step("first");
	meet(&threads5_barrier);
	meet(&threads5_barrier);
	live(142 * MB, 8);
	step("second");
	meet(&threads5_barrier);
	for (int i = 0; i < 5; i++)
		join_thread(threads[i]);
}

enum { ANOMALY_THREADS = 4, ANOMALY_ITERATIONS = 20, ANOMALY_AT = 5, ANOMALY_KEPT = 4 };

static pthread_barrier_t anomaly_turn, anomaly_end;

// A thread keeps its newest blocks. It frees the oldest before it allocates the next.
static void anomaly_iteration(int thread, int iteration, CUdeviceptr *kept, int *allocated)
{
	if (thread == 0 && iteration == ANOMALY_AT) {
		allocate(2 * MB);
		allocate(2096 * MB);
		return;
	}
	CUdeviceptr *oldest = &kept[*allocated % ANOMALY_KEPT];
	if (*allocated >= ANOMALY_KEPT)
		release(*oldest);
	*oldest = allocate(10 * MB);
	++*allocated;
}

// Threads run one after the other, so that the order of all calls is always the same.
static void *anomaly_body(void *arg)
{
	int self = *(int *)arg;
	CUdeviceptr kept[ANOMALY_KEPT];
	int allocated = 0;
	for (int i = 0; i < ANOMALY_ITERATIONS * ANOMALY_THREADS; i++) {
		if (i % ANOMALY_THREADS == self)
			anomaly_iteration(self, i / ANOMALY_THREADS, kept, &allocated);
		meet(&anomaly_turn);
	}
	meet(&anomaly_end);
	meet(&anomaly_end);
	return NULL;
}

void anomaly(void)
{
	static int numbers[ANOMALY_THREADS];
	pthread_t threads[ANOMALY_THREADS];
	open_gpu();
	pthread_barrier_init(&anomaly_turn, NULL, ANOMALY_THREADS);
	pthread_barrier_init(&anomaly_end, NULL, ANOMALY_THREADS + 1);
	for (int i = 0; i < ANOMALY_THREADS; i++) {
		numbers[i] = i;
		threads[i] = start_thread(NULL, anomaly_body, &numbers[i]);
	}
	meet(&anomaly_end);
	live((2096 + 16 * 10 + 2) * MB, 18);
	step("live");
	meet(&anomaly_end);
	for (int i = 0; i < ANOMALY_THREADS; i++)
		join_thread(threads[i]);
}
