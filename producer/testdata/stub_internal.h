// stub_internal.h: what the files of the stub library share.
#ifndef GPUTAP_STUB_INTERNAL_H
#define GPUTAP_STUB_INTERNAL_H

#include <stdbool.h>

#include "stub.h"

// API marks an exported function. Its first instruction must be the one byte `push %rbp`, as in the real driver: Linux
// emulates an x86 uprobe there and single-steps most others, at 20 times the cost. The build flags and keep_frame see
// to it. An exported function never calls another, or one call of the program would be two for the probes.
#define API __attribute__((visibility("default"), noinline, noclone))

#define STUB_CALL_ID(name, params) CALL_##name,
enum call { STUB_EACH_CALL(STUB_CALL_ID) CALLS_N };
_Static_assert((int)CALLS_N <= (int)STUB_CALLS, "truth has no room for another call");

extern struct stub_truth *truth;

static inline void add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static inline void subtract(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_sub(counter, n, __ATOMIC_RELAXED);
}

// keep_frame makes the function it is inlined in need its stack frame, at no instruction: gcc leaves the frame pointer
// of a leaf without stack variables out, whatever the flags.
static inline __attribute__((always_inline)) void keep_frame(void)
{
	char local;
	__asm__ volatile("" : "=m"(local));
}

// What a body returns for a call that went into a graph instead of to the device: the program sees success.
enum { RECORDED = -1 };

// count books the end of one call and returns what the program sees.
static inline __attribute__((always_inline)) CUresult count(enum call call, CUresult rc, uint64_t bytes)
{
	keep_frame();
	struct stub_call *c = &truth->calls[call];
	add(rc <= CUDA_SUCCESS ? &c->ok : &c->failed, 1);
	if (rc == CUDA_SUCCESS && bytes)
		add(&c->bytes, bytes);
	return rc == RECORDED ? CUDA_SUCCESS : rc;
}

extern __thread CUresult next_refusal;

// refusal hands out an ordered refusal once: its code, or 0.
static inline __attribute__((always_inline)) CUresult refusal(void)
{
	CUresult rc = next_refusal;
	if (__builtin_expect(rc != CUDA_SUCCESS, 0))
		next_refusal = CUDA_SUCCESS;
	return rc;
}

// BODY is a whole exported function: amount, of which the call's bytes are made, is read after the body ran.
#define BODY(name, amount, body)                                                                                       \
	{                                                                                                              \
		CUresult rc = refusal();                                                                               \
		if (rc == CUDA_SUCCESS)                                                                                \
			rc = (body);                                                                                   \
		return count(CALL_##name, rc, amount);                                                                 \
	}

// The forms of a call that differ in what CUDA stream 0 means alone; the body sees which as per_thread.
#define TWINS(name, suffix, params, amount, body)                                                                      \
	API CUresult name params                                                                                       \
	{                                                                                                              \
		const bool per_thread __attribute__((unused)) = false;                                                 \
		BODY(name, amount, body)                                                                               \
	}                                                                                                              \
	API CUresult name##suffix params                                                                               \
	{                                                                                                              \
		const bool per_thread __attribute__((unused)) = true;                                                  \
		BODY(name##suffix, amount, body)                                                                       \
	}

// Devices: stub_device.c. check_device says whether the driver is initialised and has the device, check_out also that
// there is somewhere to write.
CUresult check_device(CUdevice device);
CUresult check_out(const void *out, CUdevice device);
void device_reset(void);
// device_card is the number of the card that an ordinal is.
int device_card(int device);

// Contexts: stub_context.c.
struct context {
	uintptr_t handle;
	uintptr_t green; // handle of the green context behind it, or 0
	int device;
	unsigned users; // a primary context's retains; 1 for others
};

// current_context is this thread's usable context, or NULL; of a green one the primary context of its device, whose the
// memory is that is allocated there (measured: driver 580, H200). current_device is its ordinal, or -1.
struct context *current_context(void);
int current_device(void);
void context_reset(void);

// boot_ns reads the clock that Linux uses in BPF programs: nanoseconds since boot, time in suspend included.
uint64_t boot_ns(void);
// wait_until returns within a microsecond after the instant on that clock, unless Linux preempts the thread.
void wait_until(uint64_t instant);

// Kernel names: stub_name.c.
struct handle {
	const void *owner;           // +0 library, module, or the kernel that a function was made from; NULL = unused
	struct stub_kernel *counter; // +8 into truth, where the name comes first: as in the real driver 580, the word
				     //    at 8 behind a CUfunction or CUkernel points to the zero-terminated name
};
_Static_assert(offsetof(struct handle, counter) == 8 && offsetof(struct stub_kernel, name) == 0, "as in driver 580");

// known_handle is NULL for numbers that are no handle of ours.
struct handle *known_handle(const void *handle);
void name_reset(void);

// Capture: stub_capture.c. recording is the graph that records this CUDA stream's calls, or NULL.
struct graph;
extern int captures_n;
struct graph *capture_graph(CUstream stream, bool per_thread);
void capture_event(CUevent event, CUstream stream, bool per_thread);
void capture_wait(CUstream stream, bool per_thread, CUevent event);
void capture_abandon(CUstream stream); // the CUDA stream goes, and with it what it records
void capture_reset(void);

static inline __attribute__((always_inline)) struct graph *recording(CUstream stream, bool per_thread)
{
	if (__builtin_expect(__atomic_load_n(&captures_n, __ATOMIC_RELAXED) == 0, 1))
		return NULL;
	return capture_graph(stream, per_thread);
}

// CUDA streams and CUDA events: stub_sync.c. stream_device is the ordinal of a CUDA stream's context; otherwise for one
// that nobody made.
int stream_device(CUstream stream, int otherwise);
void sync_reset(void);

// Graphs: stub_graph.c. Nodes are added by whoever records; graph_launch runs what an executable graph holds.
enum node_kind { NODE_KERNEL, NODE_ALLOC, NODE_FREE, NODE_CHILD, NODE_OTHER };
struct graph *graph_of(CUgraph graph);
struct graph *graph_new(void);
CUgraph graph_handle(struct graph *g);
CUresult graph_add(struct graph *g, CUgraphNode *node, enum node_kind kind, const void *what, uint64_t address);
CUresult graph_record_alloc(struct graph *g, CUgraphNode *node, CUdeviceptr *dptr, uint64_t bytes,
			    int device);
CUresult graph_launch(CUgraphExec exec);
// graph_record_launch makes what an executable graph runs a part of a graph that records.
CUresult graph_record_launch(struct graph *g, CUgraphExec exec);
void graph_reset(void);

// Memory: stub_memory.c. Everything below is under memory_lock.
void memory_lock(void);
void memory_unlock(void);
void memory_reset(void);
// LOCKED is the value of a call's body under the memory lock.
#define LOCKED(body)                                                                                                   \
	({                                                                                                             \
		memory_lock();                                                                                         \
		CUresult under = (body);                                                                               \
		memory_unlock();                                                                                       \
		under;                                                                                                 \
	})

// alloc_failure and free_failure hand out an ordered failure once: its code, or 0.
CUresult alloc_failure(void);
CUresult free_failure(void);
// device_charge books device-side bytes as live, or returns CUDA_ERROR_OUT_OF_MEMORY.
CUresult device_charge(int device, uint64_t bytes, enum stub_class class);
void device_discharge(int device, uint64_t bytes, enum stub_class class);
void vmm_reset(void);
// vmm_holder makes a handle for memory that is counted elsewhere, or nowhere; vmm_range checks a part of a handle's.
CUresult vmm_holder(CUmemGenericAllocationHandle *handle, uint64_t bytes);
CUresult vmm_range(CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t bytes);
void array_reset(void);
void pool_reset(void);
void host_reset(void);
void share_reset(void);

// An address space: stub_space.c.
enum block_kind {
	BLOCK_OWNED,   // goes with its context
	BLOCK_POOL,    // survives its context
	BLOCK_GRAPH,   // has memory while charged, from launch to free
	BLOCK_FOREIGN, // names memory of somebody else: no bytes
};

struct pool;

struct block {
	struct block *next;
	uint64_t address;
	uint64_t region; // rounded bytes: what the address space gave
	uint64_t bytes;  // what the caller asked for
	int device;
	enum block_kind kind;
	enum stub_class class;
	bool charged;    // of BLOCK_GRAPH
	uint64_t origin; // of BLOCK_FOREIGN: what it was opened by, for the address to be given again; 0 = never again
	const struct context *owner;
	struct pool *pool;
	unsigned mappings; // of a cuMemCreate handle
	unsigned handles;  // of a cuMemCreate handle: references not yet released; of a BLOCK_FOREIGN with an origin: opens
};

enum { SPACE_BUCKETS = 1 << 14 };

struct space {
	uint64_t top, end;
	struct block *live[SPACE_BUCKETS];
	struct block *freed[SPACE_BUCKETS]; // each list newest first
};

// space_take gives the newest freed address of an equal region, else a new one; NULL when the space is full.
struct block *space_take(struct space *s, uint64_t bytes, int device);
struct block *space_find(struct space *s, uint64_t address);
void space_give_back(struct space *s, struct block *b);
void space_reset(struct space *s, uint64_t start);
// space_end gives back what a context owned and tells how much that was.
void space_end(struct space *s, const struct context *owner, void (*gone)(const struct block *));

// What of memory ends with a context, under the lock.
void memory_end(const struct context *owner);
void array_end(const struct context *owner);
void host_end(const struct context *owner);

// device_opened finds what a context opened by an origin before, or NULL.
struct block *device_opened(const struct context *owner, uint64_t origin);

// device_take and device_give_back: device memory without and with its name, for the files of its other forms.
struct block *device_take(uint64_t bytes, int device, enum block_kind kind, const struct context *owner);
struct block *device_find(uint64_t address);
void device_give_back(struct block *b);
// allocate and release are whole calls: they lock.
CUresult allocate(CUdeviceptr *dptr, uint64_t bytes, enum stub_class class);
// allocate_in takes from a pool: NULL is the own one of the device.
CUresult allocate_in(CUdeviceptr *dptr, uint64_t bytes, struct pool *pool, int device);
CUresult release(CUdeviceptr dptr, uint64_t *bytes);

// Pools: stub_pool.c. A NULL pool is the device's own, which is not simulated.
CUresult pool_charge(struct pool *pool, uint64_t bytes);
void pool_discharge(struct pool *pool, uint64_t bytes);

// array_foreign makes a handle for an array in memory that is counted elsewhere.
CUresult array_foreign(CUmipmappedArray *array);

// Tokens and file descriptors that another process may open: stub_share.c.
struct shared {
	uint64_t magic, what, pid, bytes;
};
CUtoken token_make(uint64_t what, uint64_t bytes);
// token_read is false for 64 bytes that no stub made.
bool token_read(const CUtoken *token, struct shared *shared);
CUresult share_out(void *out, int type, uint64_t what, uint64_t bytes);
CUresult share_in(const void *in, int type, struct shared *shared);

#endif
