/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Waits and CUDA events. */
#ifndef GPUTAP_SYNC_H
#define GPUTAP_SYNC_H

static __always_inline int leave_sync(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r))
		return 0;
	u64 *a = r.frame->a, handle = 0, until = 0;
	u32 elapsed = 0;
	switch (shape_of(r.cookie)) {
	case SHAPE_SYNC_HANDLE:
		handle = a[0];
		break;
	case SHAPE_EVENT_RECORD:
		handle = a[0];
		follow_event(&r, false);
		break;
	case SHAPE_WAIT_EVENT:
		handle = a[1];
		follow_event(&r, true);
		break;
	case SHAPE_ELAPSED:
		handle = a[1];
		until = a[2];
		elapsed = r.result ? 0 : read_u32(a[0]);
		break;
	}
	if (r.cookie & COOKIE_QUIET)
		return 0;
	struct sync_record *s = bulk_reserve(sizeof(*s));
	if (!s)
		return 0;
	fill_returned(&s->head, RECORD_SYNC, 0, &r);
	s->duration = r.duration;
	s->handle = handle;
	s->until = until;
	s->cuda_stream = r.cuda_stream;
	s->result = r.result;
	s->elapsed = elapsed;
	bpf_ringbuf_submit(s, bulk_flags());
	return 0;
}

#endif
