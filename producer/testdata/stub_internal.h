// stub_internal.h: declarations shared by the files of the stub library.
#ifndef GPUTAP_STUB_INTERNAL_H
#define GPUTAP_STUB_INTERNAL_H

#include <stdbool.h>

#include "stub.h"

// API marks an exported function. Its first instruction must be the one byte `push %rbp`, as in the real driver: Linux
// emulates an x86 uprobe there and single-steps most others, at 20 times the cost. The build flags and keep_frame
// ensure this. An exported function never calls another one, because the probes would then count two calls.
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

// keep_frame makes the enclosing function set up a stack frame, without an instruction of its own. gcc omits the frame
// pointer of a leaf function without stack variables, whatever the flags.
static inline __attribute__((always_inline)) void keep_frame(void)
{
	char local;
	__asm__ volatile("" : "=m"(local));
}

// RECORDED is the result of a body whose call was recorded into a graph. The program sees success.
enum { RECORDED = -1 };

// count counts one finished call and returns the result that the program sees.
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

// refusal returns the code of a requested failure once, otherwise 0.
static inline __attribute__((always_inline)) CUresult refusal(void)
{
	CUresult rc = next_refusal;
	if (__builtin_expect(rc != CUDA_SUCCESS, 0))
		next_refusal = CUDA_SUCCESS;
	return rc;
}

// BODY is the body of an exported function. It reads amount, the bytes of the call, after the body ran.
#define BODY(name, amount, body)                                                                                       \
	{                                                                                                              \
		CUresult rc = refusal();                                                                               \
		if (rc == CUDA_SUCCESS)                                                                                \
			rc = (body);                                                                                   \
		return count(CALL_##name, rc, amount);                                                                 \
	}

// TWINS defines two forms of a call that differ only in the meaning of CUDA stream 0. per_thread tells the body which.
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

// Devices: stub_device.c. check_device checks that the driver is initialised and has the device. check_out also checks
// that the out-parameter is not NULL.
CUresult check_device(CUdevice device);
CUresult check_out(const void *out, CUdevice device);
void device_reset(void);
// device_card returns the number of the card with this ordinal.
int device_card(int device);

// Contexts: stub_context.c.
struct context {
	uintptr_t handle;
	uintptr_t green; // handle of the green context, or 0
	int device;
	unsigned users; // a primary context's retains; 1 for others
};

// current_context returns this thread's usable context, or NULL. For a green context it returns the primary context of
// its device, which owns the memory allocated there (measured: driver 580, H200). current_device returns its ordinal
// or -1.
struct context *current_context(void);
int current_device(void);
void context_reset(void);

// boot_ns reads the clock of BPF programs: nanoseconds since boot, including time in suspend.
uint64_t boot_ns(void);
// wait_until returns within a microsecond after this time of boot_ns, unless Linux preempts the thread.
void wait_until(uint64_t instant);

// Kernel names: stub_name.c.
struct handle {
	const void *owner;           // +0 library, module, or kernel from which a function was created; NULL = unused
	struct stub_kernel *counter; // +8 into truth, where the name is first: in driver 580 too, the word at
				     //    offset 8 of a CUfunction or CUkernel points to the zero-terminated name
};
_Static_assert(offsetof(struct handle, counter) == 8 && offsetof(struct stub_kernel, name) == 0, "as in driver 580");

// known_handle returns NULL for a handle that the stub did not create.
struct handle *known_handle(const void *handle);
void name_reset(void);

// Capture: stub_capture.c. recording returns the graph that records this CUDA stream's calls, or NULL.
struct graph;
extern int captures_n;
struct graph *capture_graph(CUstream stream, bool per_thread);
void capture_event(CUevent event, CUstream stream, bool per_thread);
void capture_wait(CUstream stream, bool per_thread, CUevent event);
void capture_abandon(CUstream stream); // the CUDA stream is destroyed, and its capture with it
void capture_reset(void);

static inline __attribute__((always_inline)) struct graph *recording(CUstream stream, bool per_thread)
{
	if (__builtin_expect(__atomic_load_n(&captures_n, __ATOMIC_RELAXED) == 0, 1))
		return NULL;
	return capture_graph(stream, per_thread);
}

// CUDA streams and CUDA events: stub_sync.c. stream_device returns the ordinal of a CUDA stream's context. For an
// unknown CUDA stream it returns the argument otherwise.
int stream_device(CUstream stream, int otherwise);
void sync_reset(void);

// Graphs: stub_graph.c. Recorded calls add nodes. graph_launch runs the nodes of an executable graph.
enum node_kind { NODE_KERNEL, NODE_ALLOC, NODE_FREE, NODE_CHILD, NODE_OTHER };
struct graph *graph_of(CUgraph graph);
struct graph *graph_new(void);
CUgraph graph_handle(struct graph *g);
CUresult graph_add(struct graph *g, CUgraphNode *node, enum node_kind kind, const void *what, uint64_t address);
CUresult graph_record_alloc(struct graph *g, CUgraphNode *node, CUdeviceptr *dptr, uint64_t bytes,
			    int device);
CUresult graph_launch(CUgraphExec exec);
// graph_record_launch adds the nodes of an executable graph to a graph that is being recorded.
CUresult graph_record_launch(struct graph *g, CUgraphExec exec);
void graph_reset(void);

// Memory: stub_memory.c. Callers of the functions below hold memory_lock.
void memory_lock(void);
void memory_unlock(void);
void memory_reset(void);
// LOCKED evaluates the body of a call while it holds the memory lock.
#define LOCKED(body)                                                                                                   \
	({                                                                                                             \
		memory_lock();                                                                                         \
		CUresult under = (body);                                                                               \
		memory_unlock();                                                                                       \
		under;                                                                                                 \
	})

// alloc_failure and free_failure return the code of a requested failure once, otherwise 0.
CUresult alloc_failure(void);
CUresult free_failure(void);
// device_charge counts bytes of device memory as live, or returns CUDA_ERROR_OUT_OF_MEMORY.
CUresult device_charge(int device, uint64_t bytes, enum stub_class class);
void device_discharge(int device, uint64_t bytes, enum stub_class class);
void vmm_reset(void);
// vmm_holder creates a handle for memory that is counted elsewhere or not at all. vmm_range checks a range of a handle.
CUresult vmm_holder(CUmemGenericAllocationHandle *handle, uint64_t bytes);
CUresult vmm_range(CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t bytes);
void array_reset(void);
void pool_reset(void);
void host_reset(void);
void share_reset(void);

// Address spaces: stub_space.c.
enum block_kind {
	BLOCK_OWNED,   // freed with its context
	BLOCK_POOL,    // outlives its context
	BLOCK_GRAPH,   // has memory while charged: from launch to free
	BLOCK_FOREIGN, // refers to memory of another owner: no bytes
};

struct pool;

struct block {
	struct block *next;
	uint64_t address;
	uint64_t region; // rounded bytes, as reserved in the address space
	uint64_t bytes;  // bytes that the caller requested
	int device;
	enum block_kind kind;
	enum stub_class class;
	bool charged;    // of BLOCK_GRAPH
	uint64_t origin; // of BLOCK_FOREIGN: the handle it was opened from, to return the same address again; 0 = none
	const struct context *owner;
	struct pool *pool;
	unsigned mappings; // of a cuMemCreate handle
	unsigned handles;  // of a cuMemCreate handle: references; of a BLOCK_FOREIGN with an origin: opens
};

enum { SPACE_BUCKETS = 1 << 14 };

struct space {
	uint64_t top, end;
	struct block *live[SPACE_BUCKETS];
	struct block *freed[SPACE_BUCKETS]; // each list newest first
};

// space_take returns the most recently freed address of an equal region, else a new one; NULL if the space is full.
struct block *space_take(struct space *s, uint64_t bytes, int device);
struct block *space_find(struct space *s, uint64_t address);
void space_give_back(struct space *s, struct block *b);
void space_reset(struct space *s, uint64_t start);
// space_end frees the blocks of a context and calls gone for each.
void space_end(struct space *s, const struct context *owner, void (*gone)(const struct block *));

// Free the memory that ends with a context, under the lock.
void memory_end(const struct context *owner);
void array_end(const struct context *owner);
void host_end(const struct context *owner);

// device_opened returns the block that a context opened from this origin, or NULL.
struct block *device_opened(const struct context *owner, uint64_t origin);

// device_take allocates device memory, and device_give_back frees it, for the files of other memory classes.
struct block *device_take(uint64_t bytes, int device, enum block_kind kind, const struct context *owner);
struct block *device_find(uint64_t address);
void device_give_back(struct block *b);
// allocate and release are complete calls and take the lock themselves.
CUresult allocate(CUdeviceptr *dptr, uint64_t bytes, enum stub_class class);
// allocate_in allocates from a pool; NULL is the default pool of the device.
CUresult allocate_in(CUdeviceptr *dptr, uint64_t bytes, struct pool *pool, int device);
CUresult release(CUdeviceptr dptr, uint64_t *bytes);

// Pools: stub_pool.c. A NULL pool is the default pool of the device, which is not simulated.
CUresult pool_charge(struct pool *pool, uint64_t bytes);
void pool_discharge(struct pool *pool, uint64_t bytes);

// array_foreign creates a handle for an array in memory that is counted elsewhere.
CUresult array_foreign(CUmipmappedArray *array);

// Tokens and file descriptors that another process can open: stub_share.c.
struct shared {
	uint64_t magic, what, pid, bytes;
};
CUtoken token_make(uint64_t what, uint64_t bytes);
// token_read returns false for a token that no stub created.
bool token_read(const CUtoken *token, struct shared *shared);
CUresult share_out(void *out, int type, uint64_t what, uint64_t bytes);
CUresult share_in(const void *in, int type, struct shared *shared);

#endif
