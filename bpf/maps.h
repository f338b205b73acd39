/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef GPUTAP_MAPS_H
#define GPUTAP_MAPS_H

/* Memory, process and name records. They are few, and launches must not starve them. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} control SEC(".maps");

struct bulk_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
};

/* Launches, copies and syncs: CPU to ring. The loader creates the rings. CPUs that share a ring contend on its lock:
 * two CPUs that both write as fast as possible then reach half the rate. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct bulk_ring);
} bulk SEC(".maps");

/* Blocks of PyTorch's allocator: one ring for all CPUs, because the order of a process's blocks must be kept. The
 * allocator reports under its mutex, so records of one device are in the order of its blocks. The loader sets the
 * size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} tensors SEC(".maps");

/* A call that was entered and has not returned. */
struct frame {
	u64 time;
	u64 a[6]; /* arguments 1 to 6 */
	u64 cookie;
};

#define FRAMES 4   /* nested calls of one thread; a power of two */
#define CONTEXTS 16 /* a power of two */

enum announced { NOT_ANNOUNCED, ANNOUNCED, IGNORED };

/* State of one thread. Linux frees it with the thread. */
struct thread_state {
	u64 cuda_context;
	u64 below[CONTEXTS]; /* contexts below the current one */
	u32 contexts;        /* number of contexts below the current one; only CONTEXTS are stored */
	u32 depth;           /* number of frames in use */
	u32 announced;
	u32 zero;
	struct frame frames[FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} threads SEC(".maps");

struct process_state {
	u64 time;
	u32 captures;        /* open captures */
	u32 captures_before; /* number of the latest capture when the process or its image started */
	u32 passed;          /* 1: a thread of this image passed the filter, so its later threads do, too */
	u32 zero;
};

/* Processes that made a call. Only their ends are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, struct process_state);
} processes SEC(".maps");

/* The capture that a CUDA stream, or a CUDA event in such a stream, belongs to. Entries of ended captures stay until
 * they are evicted: an ended capture is not in open_captures, or belongs to an earlier image, and numbers are not
 * reused. */
struct captured {
	u64 handle;
	u32 tgid;
	u32 tid; /* the thread whose default stream it is, else 0; ~0: a CUDA event */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct captured);
	__type(value, u32);
} captured SEC(".maps");

/* Capture number to the CUDA stream that started it. Only that stream can end it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct captured);
} open_captures SEC(".maps");

u32 captures_open; /* nearly always 0: a launch then needs no lookup */
u32 captures_begun;

struct cpu {
	u64 lost[LOST_CAUSES];
	u32 bulk_since_wake;
	u32 control_since_wake;
	u32 tensors_since_wake;
	u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

#endif
