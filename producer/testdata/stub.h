// stub.h: what a program sees of the stub CUDA driver library (libcuda.so.1): the CUDA calls it exports, the switches
// that make it misbehave on purpose, and the totals it keeps of itself.
//
// The totals are the truth that gputap is tested against, so nothing of gputap is used to make them. Addresses and
// handles are numbers of a simulated device: no memory stands behind any of them, host memory included.
#ifndef GPUTAP_STUB_H
#define GPUTAP_STUB_H

#include "stub_calls.h"

enum { STUB_DEVICES = 2 };
#define STUB_DEVICE_BYTES (141ull << 30)

// Copies are this slow (bytes per second) when synchronous, and at most 20 ms long, so that a test may copy any amount;
// asynchronous ones return at once.
#define STUB_HTOD_RATE 10000000000ull
#define STUB_DTOH_RATE 12000000000ull
#define STUB_DTOD_RATE 100000000000ull

// Not CUDA. The switches belong to the thread that calls them.

// stubNop does nothing and is not counted: the floor of a benchmark.
void stubNop(uint64_t a, uint64_t b, uint64_t c);

// The next device allocation (host allocation, cuMemCreate) or free of this thread fails with code; a block whose free
// failed stays live. 0 takes the order back.
void stubFailNextAlloc(int code);
void stubFailNextFree(int code);

// The next CUDA call of this thread, whichever, does nothing and returns code: no out-parameter is written.
void stubRefuseNext(int code);

// The next cuMemAlloc_v2 of this thread returns this live address; the older allocation there is gone from then on.
void stubNextAddress(unsigned long long address);

// From now on cuMemFree_v2 of this thread returns this long after others may be given the address.
void stubFreeLinger(unsigned nanoseconds);

// For a child made by the clone3 system call, which no fork handler sees. After fork() it happens by itself: the child
// starts with its own truth, no memory, no context, no handles, and must call cuInit.
void stubForked(void);

enum { STUB_TRUTH_VERSION = 3, STUB_CALLS = 320, STUB_KERNELS = 128 };

// One exported CUDA function. An entry starts 80 bytes after the one before.
struct stub_call {
	char symbol[48];  // +0   zero-terminated ELF name
	uint64_t ok;      // +48  returned 0
	uint64_t failed;  // +56  returned anything else
	uint64_t bytes;   // +64  of the ok calls: allocated, freed, reserved, mapped, copied…: what the caller
	                  //      asked for (pitched memory: pitch x height); recorded into a graph: none
	uint64_t busy_ns; // +72  synchronous copies only: boot-time ns from the first to the last statement
};

// Launches under one name that ran, whatever the library, handle or launch call: a launch that was recorded into a graph
// ran with each launch of the graph. An entry starts 104 bytes after the one before.
struct stub_kernel {
	char name[96];     // +0   zero-terminated; empty = this entry and those behind it are unused
	uint64_t launches; // +96
};

// What memory is, in the order of stub_truth.class_bytes.
enum stub_class {
	STUB_CLASS_DEVICE,
	STUB_CLASS_MANAGED,
	STUB_CLASS_POOL,
	STUB_CLASS_ARRAY,
	STUB_CLASS_VMM,
	STUB_CLASS_GRAPH,
	STUB_CLASS_PINNED,
	STUB_CLASS_REGISTERED,
	STUB_CLASSES,
};

// One card of the machine, whatever the ordinal by which a process sees it. An entry starts 56 bytes after the one before.
struct stub_card {
	char uuid[48];       // +0   zero-terminated, as the driver's tools print it
	uint64_t live_bytes; // +48  device side
};

// If GPUTAP_STUB_TRUTH names a directory, each process image has this struct in <dir>/<pid>.<boot-time ns at load>,
// shared, so that it outlives SIGKILL. Little endian. Fields are read while they change: each is exact by itself, two
// agree only while the program rests. The magic is written last.
struct stub_truth {
	char magic[8];                  //     0  "GPUTRUTH"
	uint32_t version;               //     8
	uint32_t pid;                   //    12
	uint64_t live_bytes;            //    16  device side: device, managed, pitched, async, cuMemCreate, array, graph
	uint64_t live_allocations;      //    24  the same; a cuMemCreate counts until released and unmapped
	uint64_t peak_bytes;            //    32  highest live_bytes
	uint64_t host_live_bytes;       //    40  pinned and registered host memory
	uint64_t host_live_allocations; //    48
	uint32_t calls_n;               //    56  used entries of calls
	uint32_t pad;                   //    60
	struct stub_call calls[STUB_CALLS];       //    64
	struct stub_kernel kernels[STUB_KERNELS]; // 25664
	uint64_t class_bytes[STUB_CLASSES];       // 38976  live, of either side
	uint64_t context_bytes;                   // 39040  of either side, freed by the end of their context
	uint64_t context_allocations;             // 39048
	uint64_t holders;                         // 39056  opened and not closed: they have no bytes
	struct stub_card cards[STUB_DEVICES];     // 39064
};                                                // 39176

_Static_assert(offsetof(struct stub_truth, calls) == 64, "layout is read by Go");
_Static_assert(offsetof(struct stub_truth, kernels) == 25664, "layout is read by Go");
_Static_assert(offsetof(struct stub_truth, class_bytes) == 38976, "layout is read by Go");
_Static_assert(offsetof(struct stub_truth, cards) == 39064, "layout is read by Go");
_Static_assert(sizeof(struct stub_truth) == 39176, "layout is read by Go");

// The truth of this process. Its address never changes.
const struct stub_truth *stubTruth(void);

#endif
