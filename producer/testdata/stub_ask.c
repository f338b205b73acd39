// stub_ask.c: lookup of driver functions by name.
#include <stdio.h>
#include <string.h>

#include "stub_internal.h"

static const struct {
	const char *name;
	void *address;
} exports[] = {
#define STUB_EXPORT(name, params) { #name, (void *)(name) },
	STUB_EACH_CALL(STUB_EXPORT)
};

static void *find(const char *name)
{
	for (int i = 0; i < CALLS_N; i++)
		if (strcmp(exports[i].name, name) == 0)
			return exports[i].address;
	return NULL;
}

// newest returns the newest form of a function. All versions except the first have a suffix.
static void *newest(const char *symbol, const char *suffix)
{
	static const char *const versions[] = { "_v4", "_v3", "_v2", "" };
	for (int i = 0; i < 4; i++) {
		char name[128];
		snprintf(name, sizeof name, "%s%s%s", symbol, versions[i], suffix);
		void *address = find(name);
		if (address)
			return address;
	}
	return NULL;
}

static CUresult hidden(void)
{
	return CUDA_SUCCESS;
}

// As in the real driver, some names return functions that it does not export, or functions of other libraries.
static void *unexported(const char *symbol)
{
	if (strcmp(symbol, "cuMemStubHidden") == 0)
		return (void *)hidden;
	return strcmp(symbol, "cuLaunchStubElsewhere") == 0 ? (void *)snprintf : NULL;
}

static CUresult ask(const char *symbol, void **address, uint64_t flags, int *status)
{
	enum { PER_THREAD = 2 };
	if (!symbol || !address)
		return CUDA_ERROR_INVALID_VALUE;
	void *found = unexported(symbol);
	if (!found && (flags & PER_THREAD))
		found = newest(symbol, "_ptsz") ?: newest(symbol, "_ptds");
	if (!found)
		found = newest(symbol, "");
	*address = found;
	if (status)
		*status = !found;
	return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *symbol, void **address, int version, uint64_t flags)
	BODY(cuGetProcAddress, 0, ((void)version, ask(symbol, address, flags, NULL)))

API CUresult cuGetProcAddress_v2(const char *symbol, void **address, int version, uint64_t flags, int *status)
	BODY(cuGetProcAddress_v2, 0, ((void)version, ask(symbol, address, flags, status)))

static CUresult export_table(const void **table, const CUuuid *id)
{
	static const uint64_t empty[2] = { sizeof empty };
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = empty;
	return CUDA_SUCCESS;
}

API CUresult cuGetExportTable(const void **table, const CUuuid *id)
	BODY(cuGetExportTable, 0, export_table(table, id))
