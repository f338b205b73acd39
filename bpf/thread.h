/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Shared helpers: loss counters, rings, and the state of a thread between the entry and the return of a call. */
#ifndef GPUTAP_THREAD_H
#define GPUTAP_THREAD_H

/* Records of a CPU between two forced wake-ups of the reader, which also polls. A wake-up costs the traced thread 1.2
 * us, so it must be rare. The loader sets the number for bulk rings, by the number of CPUs that share one, and for the tensor
 * ring, by its size. */
#define WAKE_EVERY 4096
const volatile u32 bulk_wake_every = WAKE_EVERY;
const volatile u32 tensor_wake_every = WAKE_EVERY;

static __always_inline struct cpu *this_cpu(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline int lost(enum loss cause)
{
	struct cpu *cpu = this_cpu();
	if (cpu)
		__sync_fetch_and_add(&cpu->lost[cause], 1);
	return 0;
}

static __always_inline u64 bulk_flags(void)
{
	struct cpu *cpu = this_cpu();
	if (!cpu || ++cpu->bulk_since_wake < bulk_wake_every)
		return BPF_RB_NO_WAKEUP;
	cpu->bulk_since_wake = 0;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline u64 control_flags(void)
{
	struct cpu *cpu = this_cpu();
	if (!cpu || ++cpu->control_since_wake < WAKE_EVERY)
		return BPF_RB_NO_WAKEUP;
	cpu->control_since_wake = 0;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline u64 tensor_flags(void)
{
	struct cpu *cpu = this_cpu();
	if (!cpu || ++cpu->tensors_since_wake < tensor_wake_every)
		return BPF_RB_NO_WAKEUP;
	cpu->tensors_since_wake = 0;
	return BPF_RB_FORCE_WAKEUP;
}

/* Reserves room for a record. NULL: the record is counted as lost. */
static __always_inline void *control_reserve(u64 bytes)
{
	void *r = bpf_ringbuf_reserve(&control, bytes, 0);
	if (!r)
		lost(LOST_CONTROL_RING);
	return r;
}

static __always_inline void *bulk_reserve(u64 bytes)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&bulk, &cpu);
	void *r = ring ? bpf_ringbuf_reserve(ring, bytes, 0) : NULL;
	if (!r)
		lost(LOST_BULK_RING);
	return r;
}

static __always_inline void *tensor_reserve(u64 bytes)
{
	void *r = bpf_ringbuf_reserve(&tensors, bytes, 0);
	if (!r)
		lost(LOST_TENSOR_RING);
	return r;
}

/* The program passed no pointer. The driver rejects such a call, so nothing is lost. */
static __always_inline bool is_null(u64 address) { return address < 4096; }

/* Reads memory that the driver has read or written. A failure is counted as loss. */
static __always_inline long read_user(void *to, u32 bytes, u64 address)
{
	if (is_null(address))
		return -1;
	long err = bpf_probe_read_user(to, bytes, (void *)address);
	if (err)
		lost(LOST_READ);
	return err;
}

static __always_inline u64 read_u64(u64 address)
{
	u64 v = 0;
	read_user(&v, sizeof(v), address);
	return v;
}

static __always_inline u32 read_u32(u64 address)
{
	u32 v = 0;
	read_user(&v, sizeof(v), address);
	return v;
}

#define DEVICE_OF_CONTEXT (-1)
#define DEVICE_NONE (-2)

/* Returns the device of a CUmemLocation {type, id}. Type 1 is a device; the other types are host memory. */
static __always_inline s32 location_device(u64 address)
{
	struct {
		u32 type, id;
	} l = {};
	if (read_user(&l, sizeof(l), address))
		return DEVICE_OF_CONTEXT;
	return l.type == 1 ? (s32)l.id : DEVICE_NONE;
}

static __always_inline u32 shape_of(u64 cookie) { return (cookie >> COOKIE_SHAPE) & 0xff; }
static __always_inline u32 stream_argument(u64 cookie) { return (cookie >> COOKIE_STREAM) & 0xf; }

static __always_inline void fill_head(struct head *h, u16 type, u16 call, u32 capture, struct task_struct *task,
				      u64 time, u64 cuda_context)
{
	h->type = type;
	h->call = call;
	h->tid = task->pid;
	h->tgid = task->tgid;
	h->capture = capture;
	h->thread_start = task->start_boottime;
	h->time = time;
	h->cuda_context = cuda_context;
}

static __always_inline bool submit_thread(struct task_struct *task, u16 type, u16 call)
{
	struct thread_record *r = control_reserve(sizeof(*r));
	if (!r)
		return false;
	struct task_struct *leader = task->group_leader;
	fill_head(&r->head, type, call, 0, task, bpf_ktime_get_boot_ns(), 0);
	r->process_start = BPF_CORE_READ(leader, start_boottime);
	r->uid = BPF_CORE_READ(task, cred, uid.val);
	r->zero = 0;
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
	bpf_probe_read_kernel(r->process_comm, sizeof(r->process_comm), leader->comm);
	/* Wake the reader: it must look up the process in /proc before the process ends. */
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
	return true;
}

#define EEXIST 17

/* Creates the state of a thread at its first call. Announces the thread, or marks it as ignored. */
static __noinline struct thread_state *first_call(struct task_struct *task)
{
	struct thread_state *s = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!s) {
		lost(LOST_STATE);
		return NULL;
	}
	u32 tgid = task->tgid;
	struct process_state *known = bpf_map_lookup_elem(&processes, &tgid);
	if (!(known && known->passed) && !wanted(task)) {
		s->announced = IGNORED;
		return NULL;
	}
	if (known)
		known->passed = 1;
	struct process_state p = {.time = bpf_ktime_get_boot_ns(), .captures_before = captures_begun, .passed = 1};
	/* int, because Linux before 6.4 leaves the upper half of the result unset */
	int err = bpf_map_update_elem(&processes, &tgid, &p, BPF_NOEXIST);
	if (err && err != -EEXIST)
		lost(LOST_STATE);
	s->announced = submit_thread(task, RECORD_THREAD, 0) ? ANNOUNCED : NOT_ANNOUNCED;
	return s;
}

/* Returns NULL if the thread is ignored, or if its call was counted as lost. */
static __always_inline struct thread_state *state_of(struct task_struct *task)
{
	struct thread_state *s = bpf_task_storage_get(&threads, task, 0, 0);
	if (s && s->announced == ANNOUNCED)
		return s;
	if (s && s->announced == IGNORED)
		return NULL;
	return first_call(task);
}

/* Returns frame i modulo FRAMES. Without the barrier the compiler masks one register and indexes with another, which
 * the verifiers of Linux 5.15 and 6.1 reject. */
static __always_inline struct frame *frame_at(struct thread_state *s, u32 i)
{
	i &= FRAMES - 1;
	asm volatile("" : "+r"(i));
	if (i >= FRAMES)
		i = 0;
	return &s->frames[i];
}

/* Returns argument n of a call. enter_batch stores the CUDA stream of a batch copy as argument 6. */
static __always_inline u64 argument(struct frame *f, u32 n)
{
	switch (n) {
	case 0:
		return 0;
	case 1:
		return f->a[0];
	case 2:
		return f->a[1];
	case 3:
		return f->a[2];
	case 4:
		return f->a[3];
	case 5:
		return f->a[4];
	}
	return f->a[5];
}

/* Stores the entry of a call; its record is written at the return. Frames that never return (longjmp) matter only when
 * there are FRAMES of them. */
static __always_inline struct frame *enter(struct pt_regs *ctx)
{
	struct thread_state *s = state_of(bpf_get_current_task_btf());
	if (!s)
		return NULL;
	if (s->depth >= FRAMES) {
		lost(LOST_UNPAIRED);
		s->depth = 0;
	}
	struct frame *f = frame_at(s, s->depth++);
	f->cookie = bpf_get_attach_cookie(ctx);
	f->a[0] = A1(ctx);
	f->a[1] = A2(ctx);
	f->a[2] = A3(ctx);
	f->a[3] = A4(ctx);
	f->a[4] = A5(ctx);
	f->a[5] = A6(ctx);
	f->time = bpf_ktime_get_boot_ns();
	return f;
}

/* The input of a return program. */
struct returned {
	struct task_struct *task;
	struct thread_state *state;
	struct frame *frame;
	u64 cookie;
	u64 duration;
	u64 cuda_stream; /* 0 for calls without one */
	u32 result;
};

/* Finds the entry of a call that returns. False: there is no entry, because it was counted as lost or because the entry
 * probe was not attached. Entry probes are attached after return probes and detached before them. */
static __always_inline bool leave(struct pt_regs *ctx, struct returned *r)
{
	u64 now = bpf_ktime_get_boot_ns();
	r->task = bpf_get_current_task_btf();
	r->cookie = bpf_get_attach_cookie(ctx);
	struct thread_state *s = bpf_task_storage_get(&threads, r->task, 0, 0);
	if (!s)
		return false;
	for (int i = 0; i < FRAMES; i++) {
		if (!s->depth)
			return false;
		struct frame *f = frame_at(s, --s->depth);
		if (f->cookie != r->cookie) {
			lost(LOST_UNPAIRED);
			continue;
		}
		r->state = s;
		r->frame = f;
		r->duration = now - f->time;
		r->cuda_stream = argument(f, stream_argument(r->cookie));
		r->result = RC(ctx);
		return true;
	}
	return false;
}

static __always_inline void fill_returned(struct head *h, u16 type, u32 capture, struct returned *r)
{
	fill_head(h, type, r->cookie, capture, r->task, r->frame->time, r->state->cuda_context);
}

#endif
