/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Chooses the watched processes. Evaluated at the first call of each thread until one has passed, and again after an
 * exec. */
#ifndef GPUTAP_FILTER_H
#define GPUTAP_FILTER_H

/* Each bit of filters is a condition that must hold. A condition holds if any of its entries matches. */
enum filter { FILTER_COMM = 1, FILTER_PID = 2, FILTER_UID = 4, FILTER_CGROUP = 8, FILTER_CONTAINER = 16 };

const volatile u32 filters;

/* The loader sizes these maps and fills the first three. The last one is updated as control groups come and go. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, char[16]); /* of the process, padded with NUL */
	__type(value, u8);
} filter_comms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64); /* start time of the process in ticks, because pids are reused */
} filter_pids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u8);
} filter_uids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64); /* id of a version 2 control group: its inode */
	__type(value, u8); /* conditions that the group meets: FILTER_CGROUP, FILTER_CONTAINER or both */
} filter_cgroups SEC(".maps");

#define TICK 10000000     /* ns per tick in /proc */
#define CGROUP_LEVELS 32  /* maximal depth of a chosen group; groups inside it may be deeper */

/* Checks the thread's group and its parents, from the root inwards. */
static __always_inline bool cgroup_wanted(u32 needed)
{
	u32 met = 0;
	for (int level = 0; level < CGROUP_LEVELS; level++) {
		u64 id = bpf_get_current_ancestor_cgroup_id(level); /* available to uprobes since Linux 5.7 */
		if (!id)
			return false;
		u8 *meets = bpf_map_lookup_elem(&filter_cgroups, &id);
		if (meets)
			met |= *meets;
		if ((met & needed) == needed)
			return true;
	}
	return false;
}

static __always_inline bool pid_wanted(struct task_struct *task)
{
	u32 tgid = task->tgid;
	u64 *ticks = bpf_map_lookup_elem(&filter_pids, &tgid);
	return ticks && BPF_CORE_READ(task, group_leader, start_boottime) / TICK == *ticks;
}

static __always_inline bool wanted(struct task_struct *task)
{
	if (!filters)
		return true;
	if (filters & FILTER_COMM) {
		char comm[16] = {};
		struct task_struct *leader = task->group_leader;
		bpf_probe_read_kernel_str(comm, sizeof(comm), leader->comm);
		if (!bpf_map_lookup_elem(&filter_comms, comm))
			return false;
	}
	if ((filters & FILTER_PID) && !pid_wanted(task))
		return false;
	if (filters & FILTER_UID) {
		u32 uid = BPF_CORE_READ(task, cred, uid.val);
		if (!bpf_map_lookup_elem(&filter_uids, &uid))
			return false;
	}
	u32 groups = filters & (FILTER_CGROUP | FILTER_CONTAINER);
	return !groups || cgroup_wanted(groups);
}

#endif
