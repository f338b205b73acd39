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

/* What one thread is doing. Linux frees it with the thread. */
struct thread_state {
	u64 cuda_context;
	u64 time;
	u64 a1, a2, a3, a4;
	u16 call; /* of the entry that waits for its return; 0: none */
	u8 announced;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} threads SEC(".maps");

/* Processes that made a call: only their ends are told. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u64);
} processes SEC(".maps");

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
