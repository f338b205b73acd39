/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Copies and sets. */
#ifndef GPUTAP_COPY_H
#define GPUTAP_COPY_H

/* One side of CUDA_MEMCPY2D or CUDA_MEMCPY3D. */
struct side {
	u64 type, host, device, array;
};

#define MEMORY_HOST 1 /* CUmemorytype */
#define MEMORY_ARRAY 3

static __always_inline u64 side_pointer(struct side *s)
{
	switch ((u32)s->type) {
	case MEMORY_HOST:
		return s->host;
	case MEMORY_ARRAY:
		return s->array;
	}
	return s->device;
}

/* Limit of sizes in a batch copy. The amount of a larger batch copy is counted as lost. */
#define BATCH_SIZES 1024

static __always_inline u64 sum_of(u64 sizes, u64 count)
{
	u64 sum = 0;
	if (count > BATCH_SIZES) {
		lost(LOST_READ);
		return 0;
	}
	for (u32 i = 0; i < BATCH_SIZES; i++) {
		u64 v = 0;
		if (i >= count)
			break;
		if (bpf_probe_read_user(&v, sizeof(v), (void *)(sizes + 8 * i))) {
			lost(LOST_READ);
			break;
		}
		sum += v;
	}
	return sum;
}

struct movement {
	u64 dst, src, bytes;
	u32 dst_type, src_type;
};

static __always_inline void read_struct(struct movement *m, u64 address, u32 src_at, u32 dst_at, u32 extent_at,
					bool deep)
{
	struct side src = {}, dst = {};
	u64 extent[3] = {0, 0, 1};
	m->dst = m->src = m->bytes = 0;
	if (is_null(address))
		return;
	long err = bpf_probe_read_user(&src, sizeof(src), (void *)(address + src_at));
	err |= bpf_probe_read_user(&dst, sizeof(dst), (void *)(address + dst_at));
	err |= bpf_probe_read_user(extent, deep ? 24 : 16, (void *)(address + extent_at));
	if (err)
		lost(LOST_READ);
	m->src = side_pointer(&src);
	m->dst = side_pointer(&dst);
	m->src_type = src.type;
	m->dst_type = dst.type;
	m->bytes = extent[0] * extent[1] * extent[2];
}

static __always_inline void read_movement(struct returned *r, struct movement *m)
{
	u64 *a = r->frame->a;
	m->dst = a[0];
	m->src = a[1];
	m->bytes = a[2];
	m->dst_type = m->src_type = 0;
	switch (shape_of(r->cookie)) {
	case SHAPE_COPY:
		break;
	case SHAPE_COPY_PEER:
		m->src = a[2];
		m->bytes = a[4];
		break;
	case SHAPE_COPY_2D:
		read_struct(m, a[0], 16, 72, 112, false);
		break;
	case SHAPE_COPY_3D:
		read_struct(m, a[0], 32, 120, 176, true);
		break;
	case SHAPE_COPY_TO_ARRAY:
		m->src = a[2];
		m->bytes = a[3];
		break;
	case SHAPE_COPY_FROM_ARRAY:
		m->bytes = a[3];
		break;
	case SHAPE_COPY_ARRAYS:
		m->src = a[2];
		m->bytes = a[4];
		break;
	case SHAPE_COPY_BATCH:
		m->dst = a[3] ? read_u64(a[0]) : 0;
		m->src = a[3] ? read_u64(a[1]) : 0;
		m->bytes = sum_of(a[2], a[3]);
		break;
	case SHAPE_SET:
		m->src = 0;
		break;
	case SHAPE_SET_2D:
		m->src = 0;
		m->bytes = a[3] * a[4];
		break;
	}
}

/* The CUDA stream of a batch copy is on the stack. The callee may overwrite it, so it is read at entry. */
static __always_inline int enter_batch(struct pt_regs *ctx)
{
	struct frame *f = enter(ctx);
	if (f)
		f->a[5] = stack_argument(ctx, stream_argument(f->cookie));
	return 0;
}

static __always_inline int leave_copy(struct pt_regs *ctx)
{
	struct returned r;
	struct movement m;
	if (!leave(ctx, &r))
		return 0;
	read_movement(&r, &m);
	u32 capture = stream_argument(r.cookie) ? capture_of(r.task, r.cookie, r.cuda_stream) : 0;
	struct copy_record *c = capture ? control_reserve(sizeof(*c)) : bulk_reserve(sizeof(*c));
	if (!c)
		return 0;
	fill_returned(&c->head, RECORD_COPY, capture, &r);
	c->duration = r.duration;
	c->dst = m.dst;
	c->src = m.src;
	c->bytes = m.bytes;
	c->cuda_stream = r.cuda_stream;
	c->result = r.result;
	c->src_type = m.src_type;
	c->dst_type = m.dst_type;
	bpf_ringbuf_submit(c, capture ? control_flags() : bulk_flags());
	return 0;
}

#endif
