/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* C arguments of a probed function at its first instruction, per calling convention. */
#ifndef GPUTAP_REGS_H
#define GPUTAP_REGS_H

/* Arguments 7 to 9 of cuLaunchKernel. */
struct launch_tail {
	u32 block_z;
	u32 shared_bytes;
	u64 cuda_stream;
};

#if defined(__TARGET_ARCH_x86)

#define A1(ctx) ((ctx)->di)
#define A2(ctx) ((ctx)->si)
#define A3(ctx) ((ctx)->dx)
#define A4(ctx) ((ctx)->cx)
#define A5(ctx) ((ctx)->r8)
#define A6(ctx) ((ctx)->r9)
#define RC(ctx) ((u32)(ctx)->ax)

/* Argument n > 6. [rsp] is the return address; each further argument takes eight bytes. */
static __always_inline u64 stack_argument(struct pt_regs *ctx, u32 n)
{
	u64 v = 0;
	bpf_probe_read_user(&v, sizeof(v), (void *)(ctx->sp + 8 * (n - 6)));
	return v;
}

/* Address of a second argument that is a struct of more than two words, passed by value. */
static __always_inline u64 second_by_value(struct pt_regs *ctx) { return ctx->sp + 8; }

static __always_inline long read_launch_tail(struct pt_regs *ctx, struct launch_tail *t)
{
	u64 stack[3] = {};
	long err = bpf_probe_read_user(stack, sizeof(stack), (void *)(ctx->sp + 8));
	t->block_z = stack[0];
	t->shared_bytes = stack[1];
	t->cuda_stream = stack[2];
	return err;
}

#elif defined(__TARGET_ARCH_arm64)

#define A1(ctx) ((ctx)->regs[0])
#define A2(ctx) ((ctx)->regs[1])
#define A3(ctx) ((ctx)->regs[2])
#define A4(ctx) ((ctx)->regs[3])
#define A5(ctx) ((ctx)->regs[4])
#define A6(ctx) ((ctx)->regs[5])
#define RC(ctx) ((u32)(ctx)->regs[0])

/* Argument n > 6: two more in registers, then the stack. */
static __always_inline u64 stack_argument(struct pt_regs *ctx, u32 n)
{
	u64 v = 0;
	if (n == 7)
		return ctx->regs[6];
	if (n == 8)
		return ctx->regs[7];
	bpf_probe_read_user(&v, sizeof(v), (void *)(ctx->sp + 8 * (n - 9)));
	return v;
}

/* A struct of more than two words is passed as the address of a copy. */
static __always_inline u64 second_by_value(struct pt_regs *ctx) { return ctx->regs[1]; }

static __always_inline long read_launch_tail(struct pt_regs *ctx, struct launch_tail *t)
{
	t->block_z = ctx->regs[6];
	t->shared_bytes = ctx->regs[7];
	return bpf_probe_read_user(&t->cuda_stream, sizeof(t->cuda_stream), (void *)ctx->sp);
}

#endif

#endif
