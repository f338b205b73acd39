//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The BPF programs observe calls and write records; they contain no policy. One program serves all calls of a record
 * type. The attach cookie of a probe says which call it is and how to read its arguments. The producer chooses the
 * program of each call. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.h"
#include "regs.h"

static __always_inline int lost(enum loss cause);

#include "filter.h"
#include "thread.h"
#include "graph.h"
#include "memory.h"
#include "copy.h"
#include "launch.h"
#include "sync.h"
#include "names.h"
#include "tensor.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe.multi")
int call_enter(struct pt_regs *ctx) { enter(ctx); return 0; }
SEC("uprobe.multi")
int open_enter(struct pt_regs *ctx) { return enter_open(ctx); }
SEC("uprobe.multi")
int batch_enter(struct pt_regs *ctx) { return enter_batch(ctx); }

SEC("uprobe.multi")
int memory_exit(struct pt_regs *ctx) { return leave_memory(ctx); }
SEC("uprobe.multi")
int array_exit(struct pt_regs *ctx) { return leave_array(ctx); }
SEC("uprobe.multi")
int context_exit(struct pt_regs *ctx) { return leave_context(ctx); }
SEC("uprobe.multi")
int context_life_exit(struct pt_regs *ctx) { return leave_context_life(ctx); }
SEC("uprobe.multi")
int copy_exit(struct pt_regs *ctx) { return leave_copy(ctx); }
SEC("uprobe.multi")
int sync_exit(struct pt_regs *ctx) { return leave_sync(ctx); }
SEC("uprobe.multi")
int graph_exit(struct pt_regs *ctx) { return leave_graph(ctx); }
SEC("uprobe.multi")
int name_exit(struct pt_regs *ctx) { return leave_name(ctx); }
SEC("uprobe.multi")
int enumerate_exit(struct pt_regs *ctx) { return leave_enumerate(ctx); }
SEC("uprobe.multi")
int device_exit(struct pt_regs *ctx) { return leave_device(ctx); }
SEC("uprobe.multi")
int coverage_exit(struct pt_regs *ctx) { return leave_coverage(ctx); }

SEC("uprobe.multi")
int launch_enter(struct pt_regs *ctx) { return launch(ctx); }
SEC("uprobe.multi")
int launch_ex_enter(struct pt_regs *ctx) { return launch_ex(ctx); }
SEC("uprobe.multi")
int launch_multi_enter(struct pt_regs *ctx) { return launch_multi(ctx); }
SEC("uprobe.multi")
int launch_grid_enter(struct pt_regs *ctx) { return launch_grid(ctx); }
SEC("uprobe.multi")
int graph_launch_enter(struct pt_regs *ctx) { return graph_launch(ctx); }
SEC("uprobe.multi")
int host_func_enter(struct pt_regs *ctx) { return host_func(ctx); }

SEC("uprobe.multi")
int tensor_enter(struct pt_regs *ctx) { return tensor(ctx); }

/* The baseline of the benchmarks: the cost of a probe without work. */
SEC("uprobe.multi")
int empty(struct pt_regs *ctx) { return 0; }

SEC("tp_btf/sched_process_exec")
int process_exec(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tgid = task->tgid;
	struct thread_state *s = bpf_task_storage_get(&threads, task, 0, 0);
	if (s)
		__builtin_memset(s, 0, sizeof(*s));
	struct process_state *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return 0;
	close_captures(p->captures);
	p->captures = 0;
	p->captures_before = captures_begun;
	p->passed = 0;
	submit_thread(task, RECORD_END, 0);
	return 0;
}

/* A process ends with its last thread, not with its leader. Two last threads may both read live as 0: the thread that
 * deletes the entry writes the record. The other thread's p may already belong to the next process with this tgid. */
SEC("tp_btf/sched_process_exit")
int process_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tgid = task->tgid;
	if (task->signal->live.counter != 0)
		return 0;
	struct process_state *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return 0;
	u32 captures = p->captures;
	if (bpf_map_delete_elem(&processes, &tgid))
		return 0;
	close_captures(captures);
	submit_thread(task, RECORD_END, 1);
	return 0;
}
