/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Launches: one trap each, at entry. */
#ifndef GPUTAP_LAUNCH_H
#define GPUTAP_LAUNCH_H

struct launched {
	u64 func, cuda_stream;
	u32 grid[3], block[3], shared_bytes;
};

/* Launches that are recorded into a graph, and graph launches, must stay in order with the records of the graph and of
 * memory: they go to the control ring. */
static __always_inline int submit_launch(struct pt_regs *ctx, struct launched *l, bool in_order)
{
	u64 now = bpf_ktime_get_boot_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *s = state_of(task);
	if (!s)
		return 0;
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 capture = capture_of(task, cookie, l->cuda_stream);
	bool control = capture || in_order;
	struct launch_record *r = control ? control_reserve(sizeof(*r)) : bulk_reserve(sizeof(*r));
	if (!r)
		return 0;
	fill_head(&r->head, RECORD_LAUNCH, cookie, capture, task, now, s->cuda_context);
	r->func = l->func;
	r->cuda_stream = l->cuda_stream;
	__builtin_memcpy(r->grid, l->grid, sizeof(r->grid));
	__builtin_memcpy(r->block, l->block, sizeof(r->block));
	r->shared_bytes = l->shared_bytes;
	r->zero = 0;
	bpf_ringbuf_submit(r, control ? control_flags() : bulk_flags());
	return 0;
}

static __always_inline int launch(struct pt_regs *ctx)
{
	struct launch_tail tail = {};
	if (read_launch_tail(ctx, &tail))
		lost(LOST_READ);
	struct launched l = {
		.func = A1(ctx),
		.cuda_stream = tail.cuda_stream,
		.grid = {A2(ctx), A3(ctx), A4(ctx)},
		.block = {A5(ctx), A6(ctx), tail.block_z},
		.shared_bytes = tail.shared_bytes,
	};
	return submit_launch(ctx, &l, false);
}

static __always_inline int launch_ex(struct pt_regs *ctx)
{
	struct { /* CUlaunchConfig */
		u32 grid[3], block[3], shared_bytes, pad;
		u64 cuda_stream;
	} config = {};
	read_user(&config, sizeof(config), A1(ctx));
	struct launched l = {.func = A2(ctx), .cuda_stream = config.cuda_stream, .shared_bytes = config.shared_bytes};
	__builtin_memcpy(l.grid, config.grid, sizeof(l.grid));
	__builtin_memcpy(l.block, config.block, sizeof(l.block));
	return submit_launch(ctx, &l, false);
}

#define MAX_DEVICES 16

static __always_inline int launch_multi(struct pt_regs *ctx)
{
	u32 count = A2(ctx);
	u64 list = A1(ctx);
	for (u32 i = 0; i < MAX_DEVICES; i++) {
		struct { /* CUDA_LAUNCH_PARAMS */
			u64 func;
			u32 grid[3], block[3], shared_bytes, pad;
			u64 cuda_stream, params;
		} p = {};
		if (i >= count)
			return 0;
		read_user(&p, sizeof(p), list + i * sizeof(p));
		struct launched l = {.func = p.func, .cuda_stream = p.cuda_stream, .shared_bytes = p.shared_bytes};
		__builtin_memcpy(l.grid, p.grid, sizeof(l.grid));
		__builtin_memcpy(l.block, p.block, sizeof(l.block));
		submit_launch(ctx, &l, false);
	}
	if (count > MAX_DEVICES)
		lost(LOST_READ);
	return 0;
}

/* Launches of CUDA 2: an earlier call set the block size, which is not observed. */
static __always_inline int launch_grid(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	bool one = shape_of(cookie) == SHAPE_LAUNCH_ONE;
	struct launched l = {
		.func = A1(ctx),
		.cuda_stream = stream_argument(cookie) ? A4(ctx) : 0,
		.grid = {one ? 1 : A2(ctx), one ? 1 : A3(ctx), 1},
	};
	return submit_launch(ctx, &l, false);
}

static __always_inline int graph_launch(struct pt_regs *ctx)
{
	struct launched l = {.func = A1(ctx), .cuda_stream = A2(ctx)};
	return submit_launch(ctx, &l, true);
}

static __always_inline int host_func(struct pt_regs *ctx)
{
	struct launched l = {.func = A2(ctx), .cuda_stream = A1(ctx)};
	return submit_launch(ctx, &l, false);
}

#endif
