/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Blocks of PyTorch's caching allocator: one trap each, at entry. */
#ifndef GPUTAP_TENSOR_H
#define GPUTAP_TENSOR_H

#define DEVICE_TYPE_CUDA 1 /* c10::DeviceType::CUDA; host memory is 0 */

/* c10::Device is two signed bytes in the low half of a register: the type and the index. */
static __always_inline int tensor(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_boot_ns();
	u64 bytes = A2(ctx), device = A5(ctx);
	if ((device & 0xff) != DEVICE_TYPE_CUDA || !bytes)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *s = state_of(task);
	if (!s)
		return 0;
	struct tensor_record *r = tensor_reserve(sizeof(*r));
	if (!r)
		return 0;
	fill_head(&r->head, RECORD_TENSOR, bpf_get_attach_cookie(ctx), 0, task, now, s->cuda_context);
	r->ptr = A1(ctx);
	r->bytes = bytes;
	r->allocated = A3(ctx);
	r->reserved = A4(ctx);
	r->device = (__s8)(device >> 8);
	r->zero = 0;
	bpf_ringbuf_submit(r, tensor_flags());
	return 0;
}

#endif
