/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The layout of every ring record: the one place where Linux and Go agree. Little endian,
 * natural alignment, every byte written. layout_test.go compares the Go side with the BTF of
 * these structs. */
#ifndef GPUTAP_EVENT_H
#define GPUTAP_EVENT_H

enum record_type {
	RECORD_MEMORY = 1, /* control ring */
	RECORD_THREAD,     /* control ring: first call of a thread */
	RECORD_END,        /* control ring: exec or exit of a process that made calls */
	RECORD_NAME,       /* control ring: handle -> name, or handle -> handle */
	RECORD_DEVICE,     /* control ring: context -> ordinal, or ordinal -> UUID */
	RECORD_LAUNCH,     /* bulk ring of the CPU */
	RECORD_COPY,       /* bulk ring of the CPU */
};

/* Indices of struct cpu.lost; the same order as schema.Loss. */
enum loss {
	LOST_CONTROL_RING,
	LOST_BULK_RING,
	LOST_STATE,
	LOST_READ,
	LOST_UNPAIRED,
	LOST_CAUSES,
};

struct head {
	__u16 type;
	__u16 call;         /* row of schema.Calls: the attach cookie */
	__u32 tid;
	__u32 tgid;
	__u32 zero;
	__u64 thread_start; /* boot-time ns; with tid the identity of a thread */
	__u64 time;         /* boot-time ns at entry */
	__u64 cuda_context; /* current context of the thread; 0 unknown */
};

struct memory_record {
	struct head head;
	__u64 duration;
	__u64 ptr;
	__u64 bytes;
	__u64 aux;
	__u32 result;
	__s32 device; /* ordinal named by the arguments; -1: that of the context; -2: host memory */
};

struct launch_record {
	struct head head;
	__u64 func;
	__u64 cuda_stream;
	__u32 grid[3];
	__u32 block[3];
	__u32 shared_bytes;
	__u32 zero;
};

struct copy_record {
	struct head head;
	__u64 duration;
	__u64 dst;
	__u64 src;
	__u64 bytes;
	__u64 cuda_stream;
	__u32 result;
	__u32 zero;
};

struct thread_record { /* RECORD_THREAD and RECORD_END */
	struct head head;
	__u64 process_start;
	__u32 uid;
	__u32 zero;
	char comm[16];         /* of the thread */
	char process_comm[16]; /* of the thread group leader */
};

#define NAME_BYTES 2048

struct name_record {
	struct head head;
	__u64 handle;
	__u64 alias;      /* another handle of the same kernel; 0: name holds the name */
	__u64 name_bytes; /* with the terminating NUL; NAME_BYTES: it may have been cut */
	char name[NAME_BYTES];
};

struct device_record {
	struct head head;
	__u64 cuda_context_made; /* of the primary context; 0: uuid holds the device's UUID */
	__u32 device;
	__u32 zero;
	__u8 uuid[16];
};

_Static_assert(sizeof(struct head) == 40, "head");
_Static_assert(sizeof(struct memory_record) == 80, "memory_record");
_Static_assert(sizeof(struct launch_record) == 88, "launch_record");
_Static_assert(sizeof(struct copy_record) == 88, "copy_record");
_Static_assert(sizeof(struct thread_record) == 88, "thread_record");
_Static_assert(sizeof(struct name_record) == 64 + NAME_BYTES, "name_record");
_Static_assert(sizeof(struct device_record) == 72, "device_record");

#endif
