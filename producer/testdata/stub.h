// stub.h: the interface of the stub CUDA driver library (libcuda.so.1): the CUDA calls that it exports, the switches
// that make it fail on purpose, and the totals that it counts.
//
// Tests compare gputap with these totals, so no code of gputap counts them. Addresses and handles are numbers of a
// simulated device. They refer to no memory, not even those of host memory.
#ifndef GPUTAP_STUB_H
#define GPUTAP_STUB_H

#include "stub_calls.h"

enum { STUB_DEVICES = 2 };
#define STUB_DEVICE_BYTES (141ull << 30)

// Rates of synchronous copies in bytes per second. A copy takes at most 20 ms, so that a test may copy any amount.
// Asynchronous copies return at once.
#define STUB_HTOD_RATE 10000000000ull
#define STUB_DTOH_RATE 12000000000ull
#define STUB_DTOD_RATE 100000000000ull

// Not part of CUDA. Each switch applies to the thread that calls it.

// stubNop does nothing and is not counted. Benchmarks use it as a baseline.
void stubNop(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e);

// The next allocation (device, host or cuMemCreate) or free of this thread fails with code. A block whose free failed
// stays live. Code 0 cancels the request.
void stubFailNextAlloc(int code);
void stubFailNextFree(int code);

// The next CUDA call of this thread does nothing and returns code. It writes no out-parameter.
void stubRefuseNext(int code);

// The next cuMemAlloc_v2 of this thread returns this live address and replaces the allocation there.
void stubNextAddress(unsigned long long address);

// From now on, cuMemFree_v2 of this thread returns this long after other threads can get the address.
void stubFreeLinger(unsigned nanoseconds);

// stubForked resets the stub in a child of the clone3 system call, which runs no fork handlers. After fork() a handler
// calls it. The child starts with its own totals and without memory, contexts and handles, and must call cuInit.
void stubForked(void);

enum { STUB_TRUTH_VERSION = 3, STUB_CALLS = 320, STUB_KERNELS = 128 };

// One exported CUDA function. An entry starts 80 bytes after the one before.
struct stub_call {
	char symbol[48];  // +0   zero-terminated ELF name
	uint64_t ok;      // +48  calls that returned 0
	uint64_t failed;  // +56  calls that returned an error
	uint64_t bytes;   // +64  of the ok calls: bytes that the caller allocated, freed, mapped, copied…
	                  //      (pitched memory: pitch x height); 0 for calls recorded into a graph
	uint64_t busy_ns; // +72  synchronous copies only: boot-time ns from the first to the last statement
};

// Launches that ran under one kernel name, from all libraries, handles and launch calls. A launch recorded into a graph
// runs with each launch of the graph. An entry starts 104 bytes after the one before.
struct stub_kernel {
	char name[96];     // +0   zero-terminated; empty = this entry and all later ones are unused
	uint64_t launches; // +96
};

// Classes of memory, in the order of stub_truth.class_bytes.
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

// One card of the machine, independent of its ordinal in a process. An entry starts 56 bytes after the one before.
struct stub_card {
	char uuid[48];       // +0   zero-terminated, as the driver's tools print it
	uint64_t live_bytes; // +48  device memory
};

// If GPUTAP_STUB_TRUTH names a directory, each process image maps this struct from <dir>/<pid>.<boot-time ns at load>,
// so that it survives SIGKILL. Little endian. A reader may read while the program runs: each field is exact, but two
// fields agree only while the program makes no calls. The magic is written last.
struct stub_truth {
	char magic[8];                  //     0  "GPUTRUTH"
	uint32_t version;               //     8
	uint32_t pid;                   //    12
	uint64_t live_bytes;            //    16  device memory: device, managed, pitched, async, cuMemCreate, array, graph
	uint64_t live_allocations;      //    24  of live_bytes; a cuMemCreate counts until released and unmapped
	uint64_t peak_bytes;            //    32  highest live_bytes
	uint64_t host_live_bytes;       //    40  pinned and registered host memory
	uint64_t host_live_allocations; //    48
	uint32_t calls_n;               //    56  used entries of calls
	uint32_t pad;                   //    60
	struct stub_call calls[STUB_CALLS];       //    64
	struct stub_kernel kernels[STUB_KERNELS]; // 25664
	uint64_t class_bytes[STUB_CLASSES];       // 38976  live device and host memory
	uint64_t context_bytes;                   // 39040  device and host memory that a context freed at its end
	uint64_t context_allocations;             // 39048
	uint64_t holders;                         // 39056  opened and not closed; they have no bytes
	struct stub_card cards[STUB_DEVICES];     // 39064
};                                                // 39176

_Static_assert(offsetof(struct stub_truth, calls) == 64, "layout is read by Go");
_Static_assert(offsetof(struct stub_truth, kernels) == 25664, "layout is read by Go");
_Static_assert(offsetof(struct stub_truth, class_bytes) == 38976, "layout is read by Go");
_Static_assert(offsetof(struct stub_truth, cards) == 39064, "layout is read by Go");
_Static_assert(sizeof(struct stub_truth) == 39176, "layout is read by Go");

// The totals of this process. Their address never changes.
const struct stub_truth *stubTruth(void);

#endif
