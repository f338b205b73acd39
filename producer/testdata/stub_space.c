// stub_space.c: a simulated address space. It reuses freed addresses, newest first, as real allocators do.
#include <stdlib.h>
#include <string.h>

#include "stub_internal.h"

enum { SMALL_GRAIN = 512, LARGE_GRAIN = 2 << 20, LARGE_FROM = 1 << 20 };

static uint64_t grain(uint64_t bytes)
{
	return bytes >= LARGE_FROM ? LARGE_GRAIN : SMALL_GRAIN;
}

static uint64_t round_up(uint64_t n, uint64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

static struct block **bucket(struct block **lists, uint64_t key)
{
	return &lists[key / SMALL_GRAIN * 0x9e3779b97f4a7c15ull >> 50];
}

_Static_assert(SPACE_BUCKETS == 1 << (64 - 50), "bucket keeps the top bits of the hash");

static struct block *unlink_freed(struct space *s, uint64_t region)
{
	for (struct block **at = bucket(s->freed, region); *at; at = &(*at)->next) {
		struct block *b = *at;
		if (b->region == region) {
			*at = b->next;
			return b;
		}
	}
	return NULL;
}

static struct block *extend(struct space *s, uint64_t bytes, uint64_t region)
{
	uint64_t address = round_up(s->top, grain(bytes));
	if (region > s->end - address)
		return NULL;
	struct block *b = malloc(sizeof *b);
	if (!b)
		return NULL;
	b->address = address;
	b->region = region;
	s->top = address + region;
	return b;
}

struct block *space_take(struct space *s, uint64_t bytes, int device)
{
	if (bytes > s->end)
		return NULL;
	uint64_t region = round_up(bytes, grain(bytes));
	struct block *b = unlink_freed(s, region);
	if (!b)
		b = extend(s, bytes, region);
	if (!b)
		return NULL;
	b->bytes = bytes;
	b->device = device;
	b->kind = BLOCK_OWNED;
	b->charged = false;
	b->class = STUB_CLASS_DEVICE;
	b->origin = 0;
	b->owner = NULL;
	b->pool = NULL;
	b->mappings = b->handles = 0;
	struct block **list = bucket(s->live, b->address);
	b->next = *list;
	*list = b;
	return b;
}

struct block *space_find(struct space *s, uint64_t address)
{
	struct block *b = *bucket(s->live, address);
	while (b && b->address != address)
		b = b->next;
	return b;
}

void space_give_back(struct space *s, struct block *b)
{
	struct block **at = bucket(s->live, b->address);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	struct block **list = bucket(s->freed, b->region);
	b->next = *list;
	*list = b;
}

void space_end(struct space *s, const struct context *owner, void (*gone)(const struct block *))
{
	for (int i = 0; i < SPACE_BUCKETS; i++) {
		for (struct block *b = s->live[i], *next; b; b = next) {
			next = b->next;
			if (b->owner != owner || (b->kind != BLOCK_OWNED && b->kind != BLOCK_FOREIGN))
				continue;
			gone(b);
			space_give_back(s, b);
		}
	}
}

// Blocks from before a fork are not freed until the process ends.
void space_reset(struct space *s, uint64_t start)
{
	memset(s, 0, sizeof *s);
	s->top = start;
	s->end = start + (1ull << 40);
}
