/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What every program stands on: counted loss, the rings, and what the current thread is doing between
 * the entry and the return of a call. */
#ifndef GPUTAP_THREAD_H
#define GPUTAP_THREAD_H

/* Records between two forced wake-ups of the reader, which also polls. A wake-up costs the traced
 * thread 1.2 us, so it must be rare; a ring must hold many times this. */
#define WAKE_EVERY 4096

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
	if (!cpu || ++cpu->bulk_since_wake < WAKE_EVERY)
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

static __always_inline void *bulk_reserve(u64 bytes)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&bulk, &cpu);
	return ring ? bpf_ringbuf_reserve(ring, bytes, 0) : NULL;
}

static __always_inline void fill_head(struct head *h, u16 type, u16 call, struct task_struct *task, u64 time,
				      u64 cuda_context)
{
	h->type = type;
	h->call = call;
	h->tid = task->pid;
	h->tgid = task->tgid;
	h->zero = 0;
	h->thread_start = task->start_boottime;
	h->time = time;
	h->cuda_context = cuda_context;
}

static __always_inline bool tell_thread(struct task_struct *task, u16 type, u16 call)
{
	struct thread_record *r = bpf_ringbuf_reserve(&control, sizeof(*r), 0);
	if (!r) {
		lost(LOST_CONTROL_RING);
		return false;
	}
	struct task_struct *leader = task->group_leader;
	fill_head(&r->head, type, call, task, bpf_ktime_get_boot_ns(), 0);
	r->process_start = BPF_CORE_READ(leader, start_boottime);
	r->uid = BPF_CORE_READ(task, cred, uid.val);
	r->zero = 0;
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
	bpf_probe_read_kernel(r->process_comm, sizeof(r->process_comm), leader->comm);
	/* The reader looks the process up in /proc at once: it may be gone soon. */
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
	return true;
}

/* The thread's state; on its first call the thread is announced. NULL is a counted loss. */
static __noinline struct thread_state *first_call(struct task_struct *task)
{
	struct thread_state *s = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!s)
		return NULL;
	u32 tgid = task->tgid;
	u64 time = bpf_ktime_get_boot_ns();
	if (bpf_map_update_elem(&processes, &tgid, &time, BPF_ANY))
		lost(LOST_STATE);
	s->announced = tell_thread(task, RECORD_THREAD, 0);
	return s;
}

static __always_inline struct thread_state *state_of(struct task_struct *task)
{
	struct thread_state *s = bpf_task_storage_get(&threads, task, 0, 0);
	if (s && s->announced)
		return s;
	return first_call(task);
}

/* Entry of a call whose record is written at its return. */
static __always_inline int enter(struct pt_regs *ctx)
{
	struct thread_state *s = state_of(bpf_get_current_task_btf());
	if (!s)
		return lost(LOST_STATE);
	if (s->call)
		lost(LOST_UNPAIRED);
	s->call = bpf_get_attach_cookie(ctx);
	s->a1 = A1(ctx);
	s->a2 = A2(ctx);
	s->a3 = A3(ctx);
	s->a4 = A4(ctx);
	s->time = bpf_ktime_get_boot_ns();
	return 0;
}

/* Return of a call: its entry state, which is used up. NULL when there is none: that entry was counted as
 * lost, or its probe was taken out already, since entries go before returns. */
static __always_inline struct thread_state *leave(struct pt_regs *ctx, struct task_struct *task)
{
	struct thread_state *s = bpf_task_storage_get(&threads, task, 0, 0);
	if (!s || !s->call)
		return NULL;
	if (s->call != bpf_get_attach_cookie(ctx)) {
		lost(LOST_UNPAIRED);
		return NULL;
	}
	s->call = 0;
	return s;
}

#endif
