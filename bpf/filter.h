/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which processes are watched. Asked once for each thread, at its first call, and again after an exec. */
#ifndef GPUTAP_FILTER_H
#define GPUTAP_FILTER_H

/* Each bit of filters is a condition that must hold; within one any of its entries will do. */
enum filter { FILTER_COMM = 1, FILTER_PID = 2, FILTER_UID = 4, FILTER_CGROUP = 8, FILTER_CONTAINER = 16 };

const volatile u32 filters;

/* The loader sizes these maps and fills all but the last, which follows the host's groups. */
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
	__type(value, u64); /* when the process was created, in ticks: a pid is given out again */
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
	__type(value, u8); /* FILTER_CGROUP, FILTER_CONTAINER or both: what the group meets */
} filter_cgroups SEC(".maps");

#define TICK 10000000     /* ns of a tick of /proc */
#define CGROUP_LEVELS 32  /* a wanted group may not lie deeper; what is inside it may */

/* Asks the thread's group and those around it, from the root inwards. */
static __always_inline bool cgroup_wanted(u32 needed)
{
	u32 met = 0;
	for (int level = 0; level < CGROUP_LEVELS; level++) {
		u64 id = bpf_get_current_ancestor_cgroup_id(level); /* uprobes have it since Linux 5.7 */
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
