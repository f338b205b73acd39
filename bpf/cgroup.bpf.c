//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Reports each new control group. Loaded only while a filter chooses processes by control group, and apart from
 * tap.bpf.c, which must also load on a Linux without this tracepoint. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id; /* the directory's inode */
};

struct cgroup_root {
	int hierarchy_id; /* 0: version 2 */
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

#pragma clang attribute pop

#define PATH_BYTES 1024 /* limit of Linux */

struct cgroup_record {
	u64 id;
	u64 path_bytes; /* with the terminating NUL */
	char path[PATH_BYTES]; /* from the root of the hierarchy */
};
_Static_assert(sizeof(struct cgroup_record) == 1040, "CgroupRecord in cgroup.go has another size");

/* New groups are rare, so each wakes the reader. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} cgroups SEC(".maps");

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* If the ring is full the record is dropped: the reader also scans all groups from time to time. */
static __always_inline int submit_cgroup(struct cgroup *group, const char *path)
{
	if (group->root->hierarchy_id != 0)
		return 0;
	struct cgroup_record *r = bpf_ringbuf_reserve(&cgroups, sizeof(*r), 0);
	if (!r)
		return 0;
	long bytes = bpf_probe_read_kernel_str(r->path, sizeof(r->path), path);
	r->id = group->kn->id;
	r->path_bytes = bytes > 0 ? bytes : 0;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("tp_btf/cgroup_mkdir")
int cgroup_made(u64 *ctx) { return submit_cgroup((void *)ctx[0], (void *)ctx[1]); }
