// stub_device.c: the two cards, and their ordinals in each process.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub_internal.h"

static const struct card {
	const char *bus;
	unsigned char uuid[16];
} cards[STUB_DEVICES] = {
	{ "0000:3B:00.0",
	  { 0xa0, 0xb1, 0xc2, 0xd3, 0x00, 0x01, 0x42, 0x17, 0x8a, 0x5e, 0x6f, 0x70, 0x81, 0x92, 0xa3, 0xb4 } },
	{ "0000:86:00.0",
	  { 0x1f, 0x2e, 0x3d, 0x4c, 0x11, 0x12, 0x47, 0x5b, 0x9d, 0xc6, 0xb7, 0xa8, 0x99, 0x8a, 0x7b, 0x6c } },
};

enum { UUID_TEXT = 41 };

static pthread_mutex_t mu;

// guarded by mu until initialised, then constant
static const struct card *visible[STUB_DEVICES]; // by ordinal
static int visible_n;

static bool initialised;

static void uuid_text(char *text, const unsigned char u[16])
{
	snprintf(text, UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

void device_reset(void)
{
	pthread_mutex_init(&mu, NULL);
	visible_n = 0;
	initialised = false;
	for (int i = 0; i < STUB_DEVICES; i++)
		uuid_text(truth->cards[i].uuid, cards[i].uuid);
	next_refusal = CUDA_SUCCESS;
}

// card_of returns the card of one entry of CUDA_VISIBLE_DEVICES: an index, or the beginning of a UUID.
static const struct card *card_of(const char *entry)
{
	char *end;
	char text[UUID_TEXT];
	long index = strtol(entry, &end, 10);
	if (end != entry && !*end)
		return index >= 0 && index < STUB_DEVICES ? &cards[index] : NULL;
	for (int i = 0; i < STUB_DEVICES; i++) {
		uuid_text(text, cards[i].uuid);
		if (strlen(entry) > 4 && strncmp(text, entry, strlen(entry)) == 0)
			return &cards[i];
	}
	return NULL;
}

// see fills the ordinals. As in the real driver, the list ends at an entry that names no card, or a card twice.
static void see(const char *list)
{
	visible_n = 0;
	if (!list) {
		for (; visible_n < STUB_DEVICES; visible_n++)
			visible[visible_n] = &cards[visible_n];
		return;
	}
	char copy[256], *rest = copy;
	snprintf(copy, sizeof copy, "%s", list);
	for (char *entry; visible_n < STUB_DEVICES && (entry = strsep(&rest, ","));) {
		const struct card *card = card_of(entry);
		if (!card || (visible_n && visible[0] == card))
			return;
		visible[visible_n++] = card;
	}
}

static CUresult initialise(unsigned flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&mu);
	if (!initialised)
		see(getenv("CUDA_VISIBLE_DEVICES"));
	bool any = visible_n > 0;
	__atomic_store_n(&initialised, any, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&mu);
	return any ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

int device_card(int device)
{
	return (int)(visible[device] - cards);
}

CUresult check_device(CUdevice device)
{
	if (!__atomic_load_n(&initialised, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_NOT_INITIALIZED;
	return device < 0 || device >= visible_n ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult check_out(const void *out, CUdevice device)
{
	CUresult rc = check_device(device);
	return rc ? rc : out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuInit(unsigned flags)
	BODY(cuInit, 0, initialise(flags))

API CUresult cuDeviceGetCount(int *n)
	BODY(cuDeviceGetCount, 0, check_out(n, 0) ?: (*n = visible_n, CUDA_SUCCESS))

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
	BODY(cuDeviceGet, 0, check_out(device, ordinal) ?: (*device = ordinal, CUDA_SUCCESS))

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
	BODY(cuDeviceTotalMem_v2, 0, check_out(bytes, device) ?: (*bytes = STUB_DEVICE_BYTES, CUDA_SUCCESS))

static CUresult text(char *out, int length, CUdevice device, bool bus)
{
	CUresult rc = length > 0 ? check_out(out, device) : CUDA_ERROR_INVALID_VALUE;
	if (rc)
		return rc;
	if (bus)
		snprintf(out, (size_t)length, "%s", visible[device]->bus);
	else
		snprintf(out, (size_t)length, "gputap stub GPU %d", device_card(device));
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
	BODY(cuDeviceGetName, 0, text(name, length, device, false))

API CUresult cuDeviceGetPCIBusId(char *bus, int length, CUdevice device)
	BODY(cuDeviceGetPCIBusId, 0, text(bus, length, device, true))

static CUresult uuid_of(CUuuid *uuid, CUdevice device)
{
	CUresult rc = check_out(uuid, device);
	if (rc == CUDA_SUCCESS)
		memcpy(uuid->bytes, visible[device]->uuid, sizeof uuid->bytes);
	return rc;
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
	BODY(cuDeviceGetUuid, 0, uuid_of(uuid, device))

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
	BODY(cuDeviceGetUuid_v2, 0, uuid_of(uuid, device))
