//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* What runs in Linux: observe a call, write one record, decide nothing. Shapes and symbols are in
 * schema/call.go; a program pair per shape is named after it. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.h"
#include "regs.h"
#include "thread.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline u64 read_u64(u64 address)
{
	u64 v = 0;
	if (bpf_probe_read_user(&v, sizeof(v), (void *)address))
		lost(LOST_READ);
	return v;
}

enum memory_shape { ALLOC, ALLOC_PITCH, FREE, CREATE, MAP, UNMAP };

/* CUmemAllocationProp begins {type, requestedHandleTypes, location.type, location.id}; location
 * type 1 is a device, all others are host memory. */
static __always_inline s32 created_on(u64 prop)
{
	struct {
		u32 type, handle_types, location, id;
	} p = {};
	if (bpf_probe_read_user(&p, sizeof(p), (void *)prop))
		return -1;
	return p.location == 1 ? (s32)p.id : -2;
}

static __always_inline int leave_memory(struct pt_regs *ctx, enum memory_shape shape)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 now = bpf_ktime_get_boot_ns();
	u16 call = bpf_get_attach_cookie(ctx);
	struct thread_state *s = leave(ctx, task);
	if (!s)
		return 0;
	u64 ptr = s->a1, bytes = s->a2, aux = 0;
	u32 result = RC(ctx);
	s32 device = -1;
	switch (shape) {
	case ALLOC:
	case CREATE:
		aux = s->a3;
		ptr = result ? 0 : read_u64(s->a1);
		if (shape == CREATE) {
			device = created_on(aux);
			aux = 0;
		}
		break;
	case ALLOC_PITCH:
		ptr = result ? 0 : read_u64(s->a1);
		aux = result ? s->a3 : read_u64(s->a2);
		bytes = aux * s->a4;
		break;
	case FREE:
		aux = s->a2;
		bytes = 0;
		break;
	case MAP:
		aux = s->a4;
		break;
	case UNMAP:
		break;
	}
	struct memory_record *r = bpf_ringbuf_reserve(&control, sizeof(*r), 0);
	if (!r)
		return lost(LOST_CONTROL_RING);
	fill_head(&r->head, RECORD_MEMORY, call, task, s->time, s->cuda_context);
	r->duration = now - s->time;
	r->ptr = ptr;
	r->bytes = bytes;
	r->aux = aux;
	r->result = result;
	r->device = device;
	bpf_ringbuf_submit(r, control_flags());
	return 0;
}

static __always_inline int leave_copy(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 now = bpf_ktime_get_boot_ns();
	u16 call = bpf_get_attach_cookie(ctx);
	struct thread_state *s = leave(ctx, task);
	if (!s)
		return 0;
	struct copy_record *r = bulk_reserve(sizeof(*r));
	if (!r)
		return lost(LOST_BULK_RING);
	fill_head(&r->head, RECORD_COPY, call, task, s->time, s->cuda_context);
	r->duration = now - s->time;
	r->dst = s->a1;
	r->src = s->a2;
	r->bytes = s->a3;
	r->cuda_stream = s->a4;
	r->result = RC(ctx);
	r->zero = 0;
	bpf_ringbuf_submit(r, bulk_flags());
	return 0;
}

/* A launch record with its head; the caller fills the rest and submits. */
static __always_inline struct launch_record *launch_record(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_boot_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *s = state_of(task);
	if (!s) {
		lost(LOST_STATE);
		return NULL;
	}
	struct launch_record *r = bulk_reserve(sizeof(*r));
	if (!r) {
		lost(LOST_BULK_RING);
		return NULL;
	}
	fill_head(&r->head, RECORD_LAUNCH, bpf_get_attach_cookie(ctx), task, now, s->cuda_context);
	r->zero = 0;
	return r;
}

static __always_inline int launch(struct pt_regs *ctx)
{
	struct launch_tail tail = {};
	struct launch_record *r = launch_record(ctx);
	if (!r)
		return 0;
	if (read_launch_tail(ctx, &tail))
		lost(LOST_READ);
	r->func = A1(ctx);
	r->cuda_stream = tail.cuda_stream;
	r->grid[0] = A2(ctx);
	r->grid[1] = A3(ctx);
	r->grid[2] = A4(ctx);
	r->block[0] = A5(ctx);
	r->block[1] = A6(ctx);
	r->block[2] = tail.block_z;
	r->shared_bytes = tail.shared_bytes;
	bpf_ringbuf_submit(r, bulk_flags());
	return 0;
}

static __always_inline int launch_ex(struct pt_regs *ctx)
{
	struct { /* CUlaunchConfig */
		u32 grid[3], block[3], shared_bytes, pad;
		u64 cuda_stream;
	} config = {};
	struct launch_record *r = launch_record(ctx);
	if (!r)
		return 0;
	if (bpf_probe_read_user(&config, sizeof(config), (void *)A1(ctx)))
		lost(LOST_READ);
	r->func = A2(ctx);
	r->cuda_stream = config.cuda_stream;
	__builtin_memcpy(r->grid, config.grid, sizeof(r->grid));
	__builtin_memcpy(r->block, config.block, sizeof(r->block));
	r->shared_bytes = config.shared_bytes;
	bpf_ringbuf_submit(r, bulk_flags());
	return 0;
}

static __always_inline int graph_launch(struct pt_regs *ctx)
{
	struct launch_record *r = launch_record(ctx);
	if (!r)
		return 0;
	r->func = A1(ctx);
	r->cuda_stream = A2(ctx);
	__builtin_memset(r->grid, 0, sizeof(r->grid));
	__builtin_memset(r->block, 0, sizeof(r->block));
	r->shared_bytes = 0;
	bpf_ringbuf_submit(r, bulk_flags());
	return 0;
}

static __always_inline int leave_name(struct pt_regs *ctx, bool alias)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u16 call = bpf_get_attach_cookie(ctx);
	struct thread_state *s = leave(ctx, task);
	if (!s || RC(ctx))
		return 0;
	u64 handle = read_u64(s->a1);
	struct name_record *r = bpf_ringbuf_reserve(&control, sizeof(*r), 0);
	if (!r)
		return lost(LOST_CONTROL_RING);
	fill_head(&r->head, RECORD_NAME, call, task, s->time, s->cuda_context);
	r->handle = handle;
	r->alias = alias ? s->a2 : 0;
	r->name_bytes = 0;
	if (!alias) {
		long n = bpf_probe_read_user_str(r->name, sizeof(r->name), (void *)s->a3);
		if (n < 0)
			lost(LOST_READ);
		else
			r->name_bytes = n;
	}
	bpf_ringbuf_submit(r, control_flags());
	return 0;
}

static __always_inline int leave_device(struct pt_regs *ctx, bool uuid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u16 call = bpf_get_attach_cookie(ctx);
	struct thread_state *s = leave(ctx, task);
	if (!s || RC(ctx))
		return 0;
	struct device_record *r = bpf_ringbuf_reserve(&control, sizeof(*r), 0);
	if (!r)
		return lost(LOST_CONTROL_RING);
	fill_head(&r->head, RECORD_DEVICE, call, task, s->time, s->cuda_context);
	r->cuda_context_made = uuid ? 0 : read_u64(s->a1);
	r->device = s->a2;
	r->zero = 0;
	__builtin_memset(r->uuid, 0, sizeof(r->uuid));
	if (uuid && bpf_probe_read_user(r->uuid, sizeof(r->uuid), (void *)s->a1))
		lost(LOST_READ);
	bpf_ringbuf_submit(r, control_flags());
	return 0;
}

static __always_inline int leave_context(struct pt_regs *ctx)
{
	struct thread_state *s = leave(ctx, bpf_get_current_task_btf());
	if (s && !RC(ctx))
		s->cuda_context = s->a1;
	return 0;
}

SEC("uprobe.multi")
int alloc_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int alloc_exit(struct pt_regs *ctx) { return leave_memory(ctx, ALLOC); }

SEC("uprobe.multi")
int alloc_pitch_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int alloc_pitch_exit(struct pt_regs *ctx) { return leave_memory(ctx, ALLOC_PITCH); }

SEC("uprobe.multi")
int free_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int free_exit(struct pt_regs *ctx) { return leave_memory(ctx, FREE); }

SEC("uprobe.multi")
int create_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int create_exit(struct pt_regs *ctx) { return leave_memory(ctx, CREATE); }

SEC("uprobe.multi")
int map_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int map_exit(struct pt_regs *ctx) { return leave_memory(ctx, MAP); }

SEC("uprobe.multi")
int unmap_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int unmap_exit(struct pt_regs *ctx) { return leave_memory(ctx, UNMAP); }

SEC("uprobe.multi")
int launch_enter(struct pt_regs *ctx) { return launch(ctx); }
SEC("uprobe.multi")
int launch_ex_enter(struct pt_regs *ctx) { return launch_ex(ctx); }
SEC("uprobe.multi")
int graph_launch_enter(struct pt_regs *ctx) { return graph_launch(ctx); }

SEC("uprobe.multi")
int copy_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int copy_exit(struct pt_regs *ctx) { return leave_copy(ctx); }

SEC("uprobe.multi")
int name_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int name_exit(struct pt_regs *ctx) { return leave_name(ctx, false); }

SEC("uprobe.multi")
int alias_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int alias_exit(struct pt_regs *ctx) { return leave_name(ctx, true); }

SEC("uprobe.multi")
int primary_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int primary_exit(struct pt_regs *ctx) { return leave_device(ctx, false); }

SEC("uprobe.multi")
int context_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int context_exit(struct pt_regs *ctx) { return leave_context(ctx); }

SEC("uprobe.multi")
int uuid_enter(struct pt_regs *ctx) { return enter(ctx); }
SEC("uprobe.multi")
int uuid_exit(struct pt_regs *ctx) { return leave_device(ctx, true); }

/* The floor of the benchmarks: what a probe costs that does nothing. */
SEC("uprobe.multi")
int empty(struct pt_regs *ctx) { return 0; }

SEC("tp_btf/sched_process_exec")
int process_exec(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tgid = task->tgid;
	if (!bpf_map_lookup_elem(&processes, &tgid))
		return 0;
	struct thread_state *s = bpf_task_storage_get(&threads, task, 0, 0);
	if (s)
		__builtin_memset(s, 0, sizeof(*s));
	tell_thread(task, RECORD_END, 0);
	return 0;
}

/* A process ends with its last thread, not with its leader. Two last threads may both see live 0:
 * whoever deletes the entry tells. */
SEC("tp_btf/sched_process_exit")
int process_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tgid = task->tgid;
	if (task->signal->live.counter == 0 && bpf_map_delete_elem(&processes, &tgid) == 0)
		tell_thread(task, RECORD_END, 1);
	return 0;
}
