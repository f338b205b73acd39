/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Names of handles and devices, and the driver functions that a program requests. */
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

#define HANDLES (NAME_BYTES / 8)
#define MAX_LISTS 16

/* Lists the kernels of a module, HANDLES per record. Kernels beyond MAX_LISTS records are counted as lost. */
static __always_inline int leave_enumerate(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r) || r.result)
		return 0;
	u64 *a = r.frame->a, list = a[0], module = a[2];
	u32 count = a[1];
	for (u32 i = 0; i < MAX_LISTS; i++) {
		if (!count)
			return 0;
		u32 bytes = count < HANDLES ? 8 * count : NAME_BYTES;
		asm volatile("" : "+r"(bytes)); /* see frame_at */
		if (bytes > NAME_BYTES)
			return 0;
		struct name_record *n = control_reserve(sizeof(*n));
		if (!n)
			return 0;
		fill_returned(&n->head, RECORD_NAME, 0, &r);
		n->handle = 0;
		n->alias = 0;
		n->module = module;
		n->name_bytes = bytes;
		if (bpf_probe_read_user(n->name, bytes, (void *)list)) {
			lost(LOST_READ);
			n->name_bytes = 0;
		}
		bpf_ringbuf_submit(n, control_flags());
		list += bytes;
		count -= bytes / 8;
	}
	if (count)
		lost(LOST_READ);
	return 0;
}

static __always_inline int leave_device(struct pt_regs *ctx)
{
	struct returned r;
	if (!leave(ctx, &r) || r.result)
		return 0;
	u64 *a = r.frame->a;
	struct device_record *d = control_reserve(sizeof(*d));
	if (!d)
		return 0;
	fill_returned(&d->head, RECORD_DEVICE, 0, &r);
	d->device = 0;
	d->ordinal = 0;
	d->bytes = 0;
	__builtin_memset(d->uuid, 0, sizeof(d->uuid));
	__builtin_memset(d->text, 0, sizeof(d->text));
	long err = 0;
	switch (shape_of(r.cookie)) {
	case SHAPE_DEVICE:
		d->device = read_u32(a[0]);
		d->ordinal = a[1];
		break;
	case SHAPE_UUID:
		d->device = a[1];
		err = bpf_probe_read_user(d->uuid, sizeof(d->uuid), (void *)a[0]);
		break;
	case SHAPE_DEVICE_BYTES:
		d->device = a[1];
		d->bytes = read_u64(a[0]);
		break;
	default: /* SHAPE_DEVICE_TEXT */
		d->device = a[2];
		err = bpf_probe_read_user_str(d->text, sizeof(d->text), (void *)a[0]);
	}
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
