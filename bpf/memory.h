/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Memory calls and CUDA contexts. */
#ifndef GPUTAP_MEMORY_H
#define GPUTAP_MEMORY_H

/* Hashes a 64-byte token that one process passes to another. */
static __always_inline u64 token_at(u64 address)
{
	u64 words[8] = {}, hash = 14695981039346656037ull;
	if (read_user(words, sizeof(words), address))
		return 0;
	for (int i = 0; i < 8; i++)
		hash = (hash ^ words[i]) * 1099511628211ull;
	return hash;
}

#define HANDLE_POSIX_FD 1 /* CUmemAllocationHandleType; other types are tokens */

/* cuIpcOpenMemHandle takes its token by value. The callee may overwrite it, so it is read at entry. */
static __always_inline int enter_open(struct pt_regs *ctx)
{
	struct frame *f = enter(ctx);
	if (f)
		f->a[2] = token_at(second_by_value(ctx));
	return 0;
}

/* See frame_at. */
static __always_inline u64 *context_at(struct thread_state *s, u32 i)
{
	i &= CONTEXTS - 1;
	asm volatile("" : "+r"(i));
	if (i >= CONTEXTS)
		i = 0;
	return &s->below[i];
}

static __always_inline void push_context(struct thread_state *s, u64 cuda_context)
{
	if (s->cuda_context || s->contexts) {
		if (s->contexts < CONTEXTS)
			*context_at(s, s->contexts) = s->cuda_context;
		s->contexts++;
	}
	s->cuda_context = cuda_context;
}

/* A context below the CONTEXTS stored ones is unknown. */
static __always_inline void pop_context(struct thread_state *s)
{
	s->cuda_context = 0;
	if (!s->contexts)
		return;
	s->contexts--;
	if (s->contexts < CONTEXTS)
		s->cuda_context = *context_at(s, s->contexts);
}

static __always_inline int leave_context(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r) || r.result)
		return 0;
	u64 given = r.frame->a[0];
	switch (shape_of(r.cookie)) {
	case SHAPE_SET_CONTEXT:
		if (given)
			r.state->cuda_context = given;
		else
			pop_context(r.state);
		break;
	case SHAPE_PUSH_CONTEXT:
		push_context(r.state, given);
		break;
	case SHAPE_POP_CONTEXT:
		pop_context(r.state);
		break;
	}
	return 0;
}

/* The effect of a memory call. Output arguments of a failed call are not read. */
struct effect {
	u64 ptr, bytes, aux, pool;
	s32 device;
};

static __always_inline void read_effect(struct returned *r, struct effect *d)
{
	u64 *a = r->frame->a;
	bool ok = r->result == 0;
	d->ptr = a[0];
	d->bytes = d->aux = d->pool = 0;
	d->device = DEVICE_OF_CONTEXT;
	switch (shape_of(r->cookie)) {
	case SHAPE_ALLOC:
	case SHAPE_ALLOC_POOL:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->bytes = a[1];
		if (shape_of(r->cookie) == SHAPE_ALLOC_POOL)
			d->pool = a[2];
		break;
	case SHAPE_ALLOC_PITCH:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->aux = ok ? read_u64(a[1]) : a[2];
		d->bytes = d->aux * a[3];
		break;
	case SHAPE_FREE:
		break;
	case SHAPE_RANGE:
		d->bytes = a[1];
		break;
	case SHAPE_CREATE: /* CUmemAllocationProp: location at 8 */
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->bytes = a[1];
		d->device = location_device(a[2] + 8);
		break;
	case SHAPE_MAP:
		d->bytes = a[1];
		d->aux = a[3];
		break;
	case SHAPE_ACCESS:
		d->bytes = a[1];
		d->device = location_device(a[2]);
		break;
	case SHAPE_MAP_ARRAY: /* CUarrayMapInfo: resource at 8, memHandle at 64 */
		d->ptr = a[1] ? read_u64(a[0] + 8) : 0;
		d->aux = a[1] ? read_u64(a[0] + 64) : 0;
		d->bytes = a[1];
		break;
	case SHAPE_HANDLE:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->aux = a[1];
		break;
	case SHAPE_MADE:
		d->ptr = ok ? read_u64(a[0]) : 0;
		break;
	case SHAPE_EXPORT:
		d->ptr = a[1];
		if (ok)
			d->aux = a[2] == HANDLE_POSIX_FD ? read_u32(a[0]) : token_at(a[0]);
		break;
	case SHAPE_IMPORT:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->aux = a[2] == HANDLE_POSIX_FD ? (u32)a[1] : token_at(a[1]);
		break;
	case SHAPE_TOKEN:
		d->ptr = a[1];
		d->aux = ok ? token_at(a[0]) : 0;
		break;
	case SHAPE_OPEN:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->aux = a[2];
		break;
	case SHAPE_OPEN_POINTER:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->pool = a[1];
		d->aux = token_at(a[2]);
		break;
	case SHAPE_EXTERNAL: /* CUDA_EXTERNAL_MEMORY_HANDLE_DESC: type, file descriptor at 8, size at 24 */
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->aux = read_u32(a[1]) == HANDLE_POSIX_FD ? read_u32(a[1] + 8) : 0;
		d->bytes = read_u64(a[1] + 24);
		break;
	case SHAPE_EXTERNAL_BUFFER: /* CUDA_EXTERNAL_MEMORY_BUFFER_DESC: size at 8 */
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->aux = a[1];
		d->bytes = read_u64(a[2] + 8);
		break;
	case SHAPE_MULTICAST: /* CUmulticastObjectProp: size at 8 */
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->bytes = read_u64(a[1] + 8);
		d->device = DEVICE_NONE;
		break;
	case SHAPE_BIND_MEM:
		d->aux = a[2];
		d->bytes = a[4];
		break;
	case SHAPE_BIND_ADDR:
		d->aux = a[2];
		d->bytes = a[3];
		break;
	case SHAPE_UNBIND:
		d->bytes = a[3];
		d->device = a[1];
		break;
	case SHAPE_PREFETCH:
		d->bytes = a[1];
		d->device = (s32)a[2] < 0 ? DEVICE_NONE : (s32)a[2];
		break;
	case SHAPE_PREFETCH_TO: /* CUmemLocation fits in one register */
		d->bytes = a[1];
		d->device = (u32)a[2] == 1 ? (s32)(a[2] >> 32) : DEVICE_NONE;
		break;
	case SHAPE_POOL: /* CUmemPoolProps: location at 8, maxSize at 24 */
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->aux = read_u64(a[1] + 24);
		d->device = location_device(a[1] + 8);
		break;
	case SHAPE_POOL_INFO: /* attributes up to 3 are int, the others 64 bits wide */
		d->aux = (u32)a[1];
		if (ok)
			d->bytes = (u32)a[1] <= 3 ? read_u32(a[2]) : read_u64(a[2]);
		break;
	case SHAPE_MEM_INFO:
		d->ptr = 0;
		if (ok) {
			d->aux = read_u64(a[1]);
			d->bytes = d->aux - read_u64(a[0]);
		}
		break;
	case SHAPE_CONTEXT_2:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->device = a[1];
		break;
	case SHAPE_CONTEXT_3:
	case SHAPE_GREEN_CONTEXT:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->device = a[2];
		break;
	case SHAPE_CONTEXT_4:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->device = a[3];
		break;
	case SHAPE_CONTEXT_5:
		d->ptr = ok ? read_u64(a[0]) : 0;
		d->device = a[4];
		break;
	case SHAPE_ORDINAL:
		d->ptr = 0;
		d->device = a[0];
		break;
	}
}

static __always_inline void submit_memory(struct returned *r)
{
	struct effect d;
	read_effect(r, &d);
	u32 capture = stream_argument(r->cookie) ? capture_of(r->task, r->cookie, r->cuda_stream) : 0;
	if (shape_of(r->cookie) == SHAPE_MADE || shape_of(r->cookie) == SHAPE_SYNC_STREAM) {
		drop_stream(r, shape_of(r->cookie) == SHAPE_MADE ? d.ptr : r->cuda_stream);
		capture = 0;
	}
	struct memory_record *m = control_reserve(sizeof(*m));
	if (!m)
		return;
	fill_returned(&m->head, RECORD_MEMORY, capture, r);
	m->duration = r->duration;
	m->ptr = d.ptr;
	m->bytes = d.bytes;
	m->aux = d.aux;
	m->pool = d.pool;
	m->cuda_stream = r->cuda_stream;
	m->result = r->result;
	m->device = d.device;
	bpf_ringbuf_submit(m, control_flags());
}

static __always_inline int leave_memory(struct pt_regs *ctx)
{
	struct returned r;
	if (leave(ctx, &r))
		submit_memory(&r);
	return 0;
}

/* A new context becomes the thread's current one. A destroyed context is no longer current. */
static __always_inline int leave_context_life(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r))
		return 0;
	submit_memory(&r);
	if (r.result)
		return 0;
	switch (shape_of(r.cookie)) {
	case SHAPE_CONTEXT_3:
	case SHAPE_CONTEXT_4:
	case SHAPE_CONTEXT_5:
		push_context(r.state, read_u64(r.frame->a[0]));
		break;
	case SHAPE_FREE:
		if (r.state->cuda_context == r.frame->a[0])
			pop_context(r.state);
		break;
	}
	return 0;
}

static __always_inline int leave_array(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r))
		return 0;
	struct { /* CUDA_ARRAY3D_DESCRIPTOR; CUDA_ARRAY_DESCRIPTOR has neither depth nor flags */
		u64 width, height, depth;
		u32 format, channels, flags, pad;
	} d = {};
	u64 descriptor = r.frame->a[1];
	if (shape_of(r.cookie) == SHAPE_ARRAY) {
		struct {
			u64 width, height;
			u32 format, channels;
		} flat = {};
		read_user(&flat, sizeof(flat), descriptor);
		d.width = flat.width;
		d.height = flat.height;
		d.format = flat.format;
		d.channels = flat.channels;
	} else {
		read_user(&d, sizeof(d) - sizeof(d.pad), descriptor);
	}
	u64 handle = r.result ? 0 : read_u64(r.frame->a[0]);
	struct array_record *m = control_reserve(sizeof(*m));
	if (!m)
		return 0;
	fill_returned(&m->head, RECORD_ARRAY, 0, &r);
	m->duration = r.duration;
	m->handle = handle;
	m->width = d.width;
	m->height = d.height;
	m->depth = d.depth;
	m->format = d.format;
	m->channels = d.channels;
	m->flags = d.flags;
	m->levels = shape_of(r.cookie) == SHAPE_MIPMAP ? (u32)r.frame->a[2] : 1;
	m->result = r.result;
	m->zero = 0;
	bpf_ringbuf_submit(m, control_flags());
	return 0;
}

#endif
