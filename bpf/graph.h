/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Graphs. A call that is recorded into a graph does not run. A capture starts on a CUDA stream and spreads to other
 * streams through CUDA events. */
#ifndef GPUTAP_GRAPH_H
#define GPUTAP_GRAPH_H

#define PER_THREAD_STREAM 2 /* CU_STREAM_PER_THREAD */
#define CAPTURE_UNMATCHED 903
#define CAPTURE_WRONG_THREAD 908

static __always_inline void stream_key(struct captured *key, struct task_struct *task, u64 cookie, u64 cuda_stream)
{
	if (cuda_stream == 0 && (cookie & COOKIE_PER_THREAD))
		cuda_stream = PER_THREAD_STREAM;
	key->handle = cuda_stream;
	key->tgid = task->tgid;
	key->tid = cuda_stream == PER_THREAD_STREAM ? task->pid : 0;
}

static __always_inline u32 capture_at(struct captured *key)
{
	u32 *id = bpf_map_lookup_elem(&captured, key);
	if (!id || !bpf_map_lookup_elem(&open_captures, id))
		return 0;
	struct process_state *p = bpf_map_lookup_elem(&processes, &key->tgid);
	return p && *id > p->captures_before ? *id : 0;
}

/* Returns the open capture of a CUDA stream; 0: calls on the stream run. */
static __always_inline u32 capture_of(struct task_struct *task, u64 cookie, u64 cuda_stream)
{
	struct captured key;
	if (!captures_open)
		return 0;
	stream_key(&key, task, cookie, cuda_stream);
	return capture_at(&key);
}

/* Adds a handle to a capture; capture 0 removes the handle. */
static __always_inline void spread(struct captured *key, u32 capture)
{
	if (capture) {
		if (bpf_map_update_elem(&captured, key, &capture, BPF_ANY))
			lost(LOST_STATE);
	} else {
		bpf_map_delete_elem(&captured, key);
	}
}

/* A CUDA event in a captured stream belongs to the capture. A stream that waits for the event joins the capture. */
static __always_inline void follow_event(struct returned *r, bool waits)
{
	u32 tgid = r->task->tgid;
	struct captured stream;
	struct captured event = {.handle = waits ? r->frame->a[1] : r->frame->a[0], .tgid = tgid, .tid = ~0u};
	if (!captures_open || r->result)
		return;
	stream_key(&stream, r->task, r->cookie, r->cuda_stream);
	if (!waits) {
		spread(&event, capture_at(&stream));
		return;
	}
	u32 capture = capture_at(&event);
	if (capture)
		spread(&stream, capture);
}

static __always_inline void count_capture(u32 tgid, int by)
{
	struct process_state *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return;
	__sync_fetch_and_add(&p->captures, by);
	__sync_fetch_and_add(&captures_open, by);
}

static __always_inline u32 begin_capture(struct returned *r)
{
	struct captured key;
	u32 id = __sync_fetch_and_add(&captures_begun, 1) + 1;
	stream_key(&key, r->task, r->cookie, r->cuda_stream);
	if (bpf_map_update_elem(&open_captures, &id, &key, BPF_ANY)) {
		lost(LOST_STATE);
		return 0;
	}
	spread(&key, id);
	count_capture(key.tgid, 1);
	return id;
}

/* Ends the capture that a CUDA stream started. A stream that joined a capture cannot end it. */
static __always_inline u32 end_capture_at(struct captured *key)
{
	u32 id = capture_at(key);
	struct captured *from = id ? bpf_map_lookup_elem(&open_captures, &id) : NULL;
	if (!from || from->handle != key->handle || from->tid != key->tid)
		return 0;
	bpf_map_delete_elem(&captured, key);
	if (!bpf_map_delete_elem(&open_captures, &id))
		count_capture(key->tgid, -1);
	return id;
}

/* A failed capture also ends here. A capture that another thread must end does not. */
static __always_inline u32 end_capture(struct returned *r)
{
	struct captured key;
	if (r->result == CAPTURE_UNMATCHED || r->result == CAPTURE_WRONG_THREAD)
		return 0;
	stream_key(&key, r->task, r->cookie, r->cuda_stream);
	return end_capture_at(&key);
}

/* A CUDA stream was created or destroyed: its handle no longer belongs to a capture. */
static __always_inline void drop_stream(struct returned *r, u64 cuda_stream)
{
	struct captured key = {.handle = cuda_stream, .tgid = r->task->tgid};
	if (!captures_open || r->result)
		return;
	end_capture_at(&key);
	bpf_map_delete_elem(&captured, &key);
}

/* Closes the captures of a process or image that ended. Their entries stay until they are evicted. */
static __always_inline void close_captures(u32 captures)
{
	if (captures)
		__sync_fetch_and_add(&captures_open, -captures);
}

enum { NODE_KERNEL = 0, NODE_GRAPH = 4, NODE_MEM_ALLOC = 10, NODE_MEM_FREE = 11 }; /* CUgraphNodeType */

/* CUDA_KERNEL_NODE_PARAMS: func at 0, or since 12.0 kern at 56. */
static __always_inline u64 kernel_of(u64 params)
{
	u64 func = read_u64(params);
	return func ? func : read_u64(params + 56);
}

static __always_inline int leave_graph(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r))
		return 0;
	u64 *a = r.frame->a, made = 0, graph = a[1], func = 0, ptr = 0, bytes = 0;
	u32 capture = 0, shape = shape_of(r.cookie);
	if (shape == SHAPE_CAPTURE_END)
		capture = end_capture(&r);
	if (r.result && !capture)
		return 0;
	switch (shape) {
	case SHAPE_CAPTURE_BEGIN:
	case SHAPE_CAPTURE_INTO:
		capture = begin_capture(&r);
		made = r.cuda_stream;
		if (shape == SHAPE_CAPTURE_BEGIN)
			graph = 0;
		break;
	case SHAPE_CAPTURE_END:
		made = r.cuda_stream;
		graph = r.result ? 0 : read_u64(a[1]);
		break;
	case SHAPE_KERNEL_NODE:
		func = kernel_of(a[4]);
		break;
	case SHAPE_ALLOC_NODE: /* CUDA_MEM_ALLOC_NODE_PARAMS */
		func = (u32)location_device(a[4] + 8);
		bytes = read_u64(a[4] + 104);
		ptr = read_u64(a[4] + 112);
		break;
	case SHAPE_FREE_NODE:
		ptr = a[4];
		break;
	case SHAPE_CHILD_NODE:
		made = a[4];
		break;
	case SHAPE_ANY_NODE:
	case SHAPE_ANY_NODE_2: { /* CUgraphNodeParams: type at 0, parameters from 16 on */
		u64 params = shape == SHAPE_ANY_NODE ? a[4] : a[5];
		made = read_u32(params);
		switch (made) {
		case NODE_KERNEL:
			func = kernel_of(params + 16);
			break;
		case NODE_GRAPH:
			ptr = read_u64(params + 16);
			break;
		case NODE_MEM_ALLOC:
			func = (u32)location_device(params + 16 + 8);
			bytes = read_u64(params + 16 + 104);
			ptr = read_u64(params + 16 + 112);
			break;
		case NODE_MEM_FREE:
			ptr = read_u64(params + 16);
			break;
		}
		break;
	}
	case SHAPE_GRAPH_UPDATE:
		made = a[0];
		break;
	case SHAPE_GRAPH_PAIR:
		made = read_u64(a[0]);
		break;
	case SHAPE_GRAPH_GONE:
		graph = a[0];
		break;
	}
	struct graph_record *g = control_reserve(sizeof(*g));
	if (!g)
		return 0;
	fill_returned(&g->head, RECORD_GRAPH, capture, &r);
	g->made = made;
	g->graph = graph;
	g->func = func;
	g->ptr = ptr;
	g->bytes = bytes;
	bpf_ringbuf_submit(g, control_flags());
	return 0;
}

#endif
