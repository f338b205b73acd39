/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The layout of every ring record and of the attach cookie, shared by the BPF programs and Go. Records are little
 * endian and naturally aligned, and every byte is written. layout_test.go compares record.go with this file. */
#ifndef GPUTAP_EVENT_H
#define GPUTAP_EVENT_H

enum record_type {
	RECORD_MEMORY = 1, /* control ring */
	RECORD_THREAD,     /* control ring: first call of a thread */
	RECORD_END,        /* control ring: exec or exit of a process that made calls */
	RECORD_NAME,       /* control ring: name or alias of a handle */
	RECORD_DEVICE,     /* control ring: ordinal, UUID, name or memory of a device */
	RECORD_LAUNCH,     /* bulk ring; control ring for calls recorded into a graph and for graph launches */
	RECORD_COPY,       /* bulk ring; control ring for calls recorded into a graph */
	RECORD_SYNC,       /* bulk ring */
	RECORD_ARRAY,      /* control ring */
	RECORD_GRAPH,      /* control ring: captures, nodes, executable graphs */
	RECORD_COVERAGE,   /* control ring: the program requested an address of the driver */
	RECORD_TENSOR,     /* tensor ring: a block of PyTorch's allocator */
};

/* Argument families, numbered as schema.Shape. */
enum shape {
	SHAPE_NONE,
	SHAPE_ALLOC,
	SHAPE_ALLOC_PITCH,
	SHAPE_ALLOC_POOL,
	SHAPE_ARRAY,
	SHAPE_ARRAY_3D,
	SHAPE_MIPMAP,
	SHAPE_FREE,
	SHAPE_RANGE,
	SHAPE_CREATE,
	SHAPE_MAP,
	SHAPE_ACCESS,
	SHAPE_MAP_ARRAY,
	SHAPE_HANDLE,
	SHAPE_EXPORT,
	SHAPE_IMPORT,
	SHAPE_TOKEN,
	SHAPE_OPEN,
	SHAPE_OPEN_POINTER,
	SHAPE_EXTERNAL,
	SHAPE_EXTERNAL_BUFFER,
	SHAPE_MULTICAST,
	SHAPE_BIND_MEM,
	SHAPE_BIND_ADDR,
	SHAPE_UNBIND,
	SHAPE_PREFETCH,
	SHAPE_PREFETCH_TO,
	SHAPE_POOL,
	SHAPE_POOL_INFO,
	SHAPE_MEM_INFO,
	SHAPE_CONTEXT_2,
	SHAPE_CONTEXT_3,
	SHAPE_CONTEXT_4,
	SHAPE_CONTEXT_5,
	SHAPE_ORDINAL,
	SHAPE_MADE,
	SHAPE_LAUNCH,
	SHAPE_LAUNCH_EX,
	SHAPE_LAUNCH_MULTI,
	SHAPE_LAUNCH_ONE,
	SHAPE_LAUNCH_GRID,
	SHAPE_GRAPH_LAUNCH,
	SHAPE_HOST_FUNC,
	SHAPE_COPY,
	SHAPE_COPY_PEER,
	SHAPE_COPY_2D,
	SHAPE_COPY_3D,
	SHAPE_COPY_TO_ARRAY,
	SHAPE_COPY_FROM_ARRAY,
	SHAPE_COPY_ARRAYS,
	SHAPE_COPY_BATCH,
	SHAPE_SET,
	SHAPE_SET_2D,
	SHAPE_SYNC,
	SHAPE_SYNC_HANDLE,
	SHAPE_SYNC_STREAM,
	SHAPE_EVENT_RECORD,
	SHAPE_WAIT_EVENT,
	SHAPE_ELAPSED,
	SHAPE_NAME,
	SHAPE_NAME_OF,
	SHAPE_ALIAS,
	SHAPE_SET_CONTEXT,
	SHAPE_PUSH_CONTEXT,
	SHAPE_POP_CONTEXT,
	SHAPE_UUID,
	SHAPE_DEVICE_TEXT,
	SHAPE_CAPTURE_BEGIN,
	SHAPE_CAPTURE_INTO,
	SHAPE_CAPTURE_END,
	SHAPE_KERNEL_NODE,
	SHAPE_ALLOC_NODE,
	SHAPE_FREE_NODE,
	SHAPE_CHILD_NODE,
	SHAPE_GRAPH_PAIR,
	SHAPE_GRAPH_GONE,
	SHAPE_PROC_ADDRESS,
	SHAPE_EXPORT_TABLE,
	SHAPE_GREEN_CONTEXT,
	SHAPE_GRAPH_UPDATE,
	SHAPE_ANY_NODE,
	SHAPE_ANY_NODE_2,
	SHAPE_DEVICE,
	SHAPE_ENUMERATE,
	SHAPE_DEVICE_BYTES,
	SHAPE_BLOCK,
	SHAPES,
};

/* The attach cookie: row of schema.Calls, shape, number of the argument that is the CUDA stream, flags. */
#define COOKIE_SHAPE 16       /* 8 bits */
#define COOKIE_STREAM 24      /* 4 bits; 0: none */
#define COOKIE_PER_THREAD (1 << 28) /* CUDA stream 0 is the default stream of the thread */
#define COOKIE_QUIET (1 << 29)      /* write no record: the call is probed only for its effect on captures */

/* Indices of struct cpu.lost, in the order of schema.Loss. */
enum loss {
	LOST_CONTROL_RING,
	LOST_BULK_RING,
	LOST_STATE,
	LOST_READ,
	LOST_UNPAIRED,
	LOST_TENSOR_RING,
	LOST_CAUSES,
};

struct head {
	__u16 type;
	__u16 call;         /* row of schema.Calls */
	__u32 tid;
	__u32 tgid;
	__u32 capture;      /* the call was recorded into a graph by this capture; 0: it ran */
	__u64 thread_start; /* boot-time ns; (tid, thread_start) identifies a thread */
	__u64 time;         /* boot-time ns at entry */
	__u64 cuda_context; /* current context of the thread; 0: unknown */
};

struct memory_record {
	struct head head;
	__u64 duration;
	__u64 ptr;
	__u64 bytes;
	__u64 aux;
	__u64 pool;
	__u64 cuda_stream;
	__u32 result;
	__s32 device; /* ordinal from the arguments; -1: that of the context; -2: none */
};

struct array_record {
	struct head head;
	__u64 duration;
	__u64 handle;
	__u64 width, height, depth; /* of CUDA_ARRAY3D_DESCRIPTOR */
	__u32 format, channels, flags;
	__u32 levels; /* 1 unless mipmapped */
	__u32 result;
	__u32 zero;
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
	__u64 bytes; /* of sets: elements */
	__u64 cuda_stream;
	__u32 result;
	__u16 src_type; /* CUmemorytype if an argument has it, else 0 */
	__u16 dst_type;
};

struct sync_record {
	struct head head;
	__u64 duration;
	__u64 handle; /* CUDA event or context */
	__u64 until;  /* a second CUDA event */
	__u64 cuda_stream;
	__u32 result;
	__u32 elapsed; /* bits of a float: ms of GPU time */
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
	__u64 alias;      /* another handle of the same object; 0: the record has a name */
	__u64 module;     /* module or library of the handle; 0: unknown */
	__u64 name_bytes; /* with the NUL; NAME_BYTES: may be truncated. SHAPE_ENUMERATE: bytes of handles */
	char name[NAME_BYTES];
};

struct device_record {
	struct head head;
	__u32 device;
	__u32 ordinal; /* SHAPE_DEVICE */
	__u8 uuid[16]; /* SHAPE_UUID */
	char text[64]; /* SHAPE_DEVICE_TEXT */
	__u64 bytes;   /* SHAPE_DEVICE_BYTES */
};

struct graph_record {
	struct head head;
	__u64 made;  /* new graph or executable graph; capture: CUDA stream; SHAPE_ANY_NODE: node type */
	__u64 graph; /* source of the new graph, or the graph that changed */
	__u64 func;  /* kernel of the node; allocation node: ordinal, 32 bits, as memory_record.device */
	__u64 ptr;   /* address that the node allocates or frees */
	__u64 bytes;
};

struct coverage_record {
	struct head head;
	__u64 address; /* in the process; 0: the program requested a table */
	char name[64]; /* as requested, without suffix; table: its 16-byte id */
};

struct tensor_record {
	struct head head;
	__u64 ptr;
	__s64 bytes;     /* negative: the allocator took the block back */
	__u64 allocated; /* bytes of all blocks of the process on the device after the call */
	__u64 reserved;  /* bytes of driver memory that the allocator holds on the device */
	__s32 device;    /* ordinal */
	__u32 zero;
};

_Static_assert(sizeof(struct head) == 40, "head");
_Static_assert(sizeof(struct memory_record) == 96, "memory_record");
_Static_assert(sizeof(struct array_record) == 104, "array_record");
_Static_assert(sizeof(struct launch_record) == 88, "launch_record");
_Static_assert(sizeof(struct copy_record) == 88, "copy_record");
_Static_assert(sizeof(struct sync_record) == 80, "sync_record");
_Static_assert(sizeof(struct thread_record) == 88, "thread_record");
_Static_assert(sizeof(struct name_record) == 72 + NAME_BYTES, "name_record");
_Static_assert(sizeof(struct device_record) == 136, "device_record");
_Static_assert(sizeof(struct graph_record) == 80, "graph_record");
_Static_assert(sizeof(struct coverage_record) == 112, "coverage_record");
_Static_assert(sizeof(struct tensor_record) == 80, "tensor_record");

#endif
