/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef GPUTAP_MAPS_H
#define GPUTAP_MAPS_H

/* Memory, process and name records: small volume, must not be starved by launches. Resized by the
 * loader. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} control SEC(".maps");

struct bulk_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
};

/* Launches and copies, one ring per CPU: a shared one halves the rate on two CPUs already. The
 * loader makes the rings and puts them in. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct bulk_ring);
} bulk SEC(".maps");

/* A call that was entered and has not returned. */
struct frame {
	u64 time;
	u64 a[6]; /* arguments 1 to 6 */
	u64 cookie;
};

#define FRAMES 4   /* calls of one thread inside each other; a power of two */
#define CONTEXTS 16 /* a power of two */

enum announced { NOT_ANNOUNCED, ANNOUNCED, PASSED_OVER };

/* What one thread is doing. Linux frees it with the thread. */
struct thread_state {
	u64 cuda_context;
	u64 below[CONTEXTS]; /* contexts under the current one */
	u32 contexts;        /* under the current one; those above CONTEXTS are not remembered */
	u32 depth;           /* of frames */
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
	u32 captures;        /* begun and not ended */
	u32 captures_before; /* number of the latest capture when the process, or its image, began */
};

/* Processes that made a call: only their ends are told. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, struct process_state);
} processes SEC(".maps");

/* Which capture a CUDA stream, or a CUDA event put into such a stream, belongs to. A capture that has
 * ended is in no map open, or is one of an earlier image, and its number does not come again; the oldest
 * entries make room. */
struct captured {
	u64 handle;
	u32 tgid;
	u32 tid; /* of the thread whose default stream it is; else 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct captured);
	__type(value, u32);
} captured SEC(".maps");

/* By number, the CUDA stream that began it: no other can end it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct captured);
} open_captures SEC(".maps");

u32 captures_open; /* 0 nearly always: a launch then looks no further */
u32 captures_begun;

struct cpu {
	u64 lost[LOST_CAUSES];
	u32 bulk_since_wake;
	u32 control_since_wake;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

#endif
