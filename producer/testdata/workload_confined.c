// workload_confined.c: a program under a seccomp filter, as containers have.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload.h"

// The newest system call that the filter allows. Newer ones fail with EPERM, as in a container whose profile is older
// than its Linux. uretprobe is number 335 on x86-64.
#define NEWEST SYS_rseq

static void confine(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	must("prctl", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

void confined(void)
{
	confine();
	open_gpu();
	for (int i = 0; i < 10; i++) {
		CUdeviceptr block = allocate(8 * MB);
		if (i % 2)
			release(block);
	}
	live(5 * 8 * MB, 5);
	step("live");
}
