/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What handles and ordinals are, and what a program asked the driver for. */
#ifndef GPUTAP_NAMES_H
#define GPUTAP_NAMES_H

static __always_inline int leave_name(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r) || r.result)
		return 0;
	u64 *a = r.frame->a, handle, alias = 0, module = 0, string = 0;
	switch (shape_of(r.cookie)) {
	case SHAPE_NAME:
		handle = read_u64(a[0]);
		module = a[1];
		string = a[2];
		break;
	case SHAPE_NAME_OF:
		handle = a[1];
		string = read_u64(a[0]);
		break;
	default: /* SHAPE_ALIAS */
		handle = read_u64(a[0]);
		alias = a[1];
	}
	struct name_record *n = control_reserve(sizeof(*n));
	if (!n)
		return 0;
	fill_returned(&n->head, RECORD_NAME, 0, &r);
	n->handle = handle;
	n->alias = alias;
	n->module = module;
	n->name_bytes = 0;
	if (string) {
		long bytes = bpf_probe_read_user_str(n->name, sizeof(n->name), (void *)string);
		if (bytes < 0)
			lost(LOST_READ);
		else
			n->name_bytes = bytes;
	}
	bpf_ringbuf_submit(n, control_flags());
	return 0;
}

static __always_inline int leave_device(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r) || r.result)
		return 0;
	bool uuid = shape_of(r.cookie) == SHAPE_UUID;
	struct device_record *d = control_reserve(sizeof(*d));
	if (!d)
		return 0;
	fill_returned(&d->head, RECORD_DEVICE, 0, &r);
	d->device = uuid ? r.frame->a[1] : r.frame->a[2];
	d->zero = 0;
	__builtin_memset(d->uuid, 0, sizeof(d->uuid));
	__builtin_memset(d->text, 0, sizeof(d->text));
	long err;
	if (uuid)
		err = bpf_probe_read_user(d->uuid, sizeof(d->uuid), (void *)r.frame->a[0]);
	else
		err = bpf_probe_read_user_str(d->text, sizeof(d->text), (void *)r.frame->a[0]);
	if (err < 0)
		lost(LOST_READ);
	bpf_ringbuf_submit(d, control_flags());
	return 0;
}

static __always_inline int leave_coverage(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r) || r.result)
		return 0;
	u64 *a = r.frame->a;
	bool table = shape_of(r.cookie) == SHAPE_EXPORT_TABLE;
	u64 address = table ? 0 : read_u64(a[1]);
	struct coverage_record *c = control_reserve(sizeof(*c));
	if (!c)
		return 0;
	fill_returned(&c->head, RECORD_COVERAGE, 0, &r);
	c->address = address;
	__builtin_memset(c->name, 0, sizeof(c->name));
	long err;
	if (table)
		err = bpf_probe_read_user(c->name, 16, (void *)a[1]);
	else
		err = bpf_probe_read_user_str(c->name, sizeof(c->name), (void *)a[0]);
	if (err < 0)
		lost(LOST_READ);
	bpf_ringbuf_submit(c, control_flags());
	return 0;
}

#endif
