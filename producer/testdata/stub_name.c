// stub_name.c: modules, libraries, and the handles and names of their kernels.
#include <pthread.h>
#include <string.h>

#include "stub_internal.h"

enum { HANDLES_N = 1024, IMAGES_N = 256 };

static pthread_mutex_t mu;

// guarded by mu
static struct handle handles[HANDLES_N];
static int handles_n;
static struct image {
	uintptr_t handle;  // 0 = unused
	uintptr_t library; // library that returned this module
	const char *kernel; // listed by enumeration; NULL unless the image is "kernel NAME"
} images[IMAGES_N];

void name_reset(void)
{
	pthread_mutex_init(&mu, NULL);
	memset(handles, 0, sizeof handles);
	memset(images, 0, sizeof images);
	handles_n = 0;
}

#define NAMED(body)                                                                                                    \
	({                                                                                                             \
		pthread_mutex_lock(&mu);                                                                               \
		CUresult under = (body);                                                                               \
		pthread_mutex_unlock(&mu);                                                                             \
		under;                                                                                                 \
	})

static CUresult load(void *out, const void *what, uintptr_t library)
{
	if (!out || !what)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < IMAGES_N; i++) {
		if (images[i].handle)
			continue;
		images[i].handle = 0x5582ab1e0000 + 0x2e0 * (uintptr_t)i;
		images[i].library = library;
		images[i].kernel = !library && strncmp(what, "kernel ", 7) == 0 ? (const char *)what + 7 : NULL;
		memcpy(out, &images[i].handle, sizeof images[i].handle);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct image *find(const void *handle)
{
	for (struct image *m = images; handle && m < images + IMAGES_N; m++)
		if (m->handle == (uintptr_t)handle)
			return m;
	return NULL;
}

// forget invalidates the handles that came from an owner, and the handles created from them.
static void forget(const void *owner)
{
	for (struct handle *h = handles; h < handles + handles_n; h++) {
		if (h->owner != owner)
			continue;
		*h = (struct handle){ 0 };
		forget(h);
	}
}

static CUresult unload(const void *handle)
{
	struct image *m = find(handle);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	for (struct image *made = images; made < images + IMAGES_N; made++) {
		if (made->library == (uintptr_t)handle) {
			forget((void *)made->handle);
			*made = (struct image){ 0 };
		}
	}
	forget(handle);
	*m = (struct image){ 0 };
	return CUDA_SUCCESS;
}

API CUresult cuModuleLoad(CUmodule *module, const char *file)
	BODY(cuModuleLoad, 0, NAMED(load(module, file, 0)))

API CUresult cuModuleLoadData(CUmodule *module, const void *image)
	BODY(cuModuleLoadData, 0, NAMED(load(module, image, 0)))

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned options_n, void *options, void **values)
	BODY(cuModuleLoadDataEx, 0, ((void)options_n, (void)options, (void)values, NAMED(load(module, image, 0))))

API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
	BODY(cuModuleLoadFatBinary, 0, NAMED(load(module, image, 0)))

#define LIBRARY(name, what_t)                                                                                          \
	API CUresult name(CUlibrary *library, what_t what, void *jit_options, void **jit_values, unsigned jit_n,       \
			  void *library_options, void **library_values, unsigned library_n)                            \
	{                                                                                                              \
		(void)jit_options, (void)jit_values, (void)jit_n;                                                      \
		(void)library_options, (void)library_values, (void)library_n;                                          \
		BODY(name, 0, NAMED(load(library, what, 0)))                                                           \
	}

LIBRARY(cuLibraryLoadData, const void *)
LIBRARY(cuLibraryLoadFromFile, const char *)

API CUresult cuModuleUnload(CUmodule module)
	BODY(cuModuleUnload, 0, NAMED(unload(module)))

API CUresult cuLibraryUnload(CUlibrary library)
	BODY(cuLibraryUnload, 0, NAMED(unload(library)))

static CUresult module_of(CUmodule *module, CUlibrary library)
{
	return find(library) ? load(module, library, (uintptr_t)library) : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
	BODY(cuLibraryGetModule, 0, NAMED(module_of(module, library)))

// kernel_counter returns the entry of a name in the totals, or NULL if the entry or the table has no room.
static struct stub_kernel *kernel_counter(const char *name)
{
	for (int i = 0; i < STUB_KERNELS; i++) {
		struct stub_kernel *k = &truth->kernels[i];
		if (!*k->name && strlen(name) < sizeof k->name)
			strcpy(k->name, name);
		if (strcmp(k->name, name) == 0)
			return k;
	}
	return NULL;
}

// handle_of returns one stable handle for each owner and counter, in the first unused entry.
static CUresult handle_of(void *out, const void *owner, struct stub_kernel *counter)
{
	if (!counter)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct handle *h = handles, *unused = NULL;
	for (; h < handles + handles_n && (h->owner != owner || h->counter != counter); h++)
		if (!h->owner && !unused)
			unused = h;
	if (h == handles + handles_n) {
		h = unused ? unused : h;
		if (h == handles + HANDLES_N)
			return CUDA_ERROR_OUT_OF_MEMORY;
		handles_n += !unused;
		*h = (struct handle){ .owner = owner, .counter = counter };
	}
	memcpy(out, &h, sizeof h);
	return CUDA_SUCCESS;
}

static CUresult look_up(void *out, const void *owner, const char *name)
{
	if (!find(owner))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	return handle_of(out, owner, kernel_counter(name));
}

API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
	BODY(cuLibraryGetKernel, 0, NAMED(look_up(kernel, library, name)))

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
	BODY(cuModuleGetFunction, 0, NAMED(look_up(function, module, name)))

// enumerate writes handles that cannot be launched, and then the one kernel of the image.
static CUresult enumerate(void *out, unsigned n, const void *owner)
{
	struct image *m = find(owner);
	if (!out || !n || !m || !m->kernel)
		return CUDA_ERROR_INVALID_VALUE;
	void **list = out;
	for (unsigned i = 0; i < n - 1; i++)
		list[i] = (char *)owner + 8 * (i + 1);
	return handle_of(&list[n - 1], owner, kernel_counter(m->kernel));
}

API CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned n, CUmodule module)
	BODY(cuModuleEnumerateFunctions, 0, NAMED(enumerate(functions, n, module)))

API CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned n, CUlibrary library)
	BODY(cuLibraryEnumerateKernels, 0, NAMED(enumerate(kernels, n, library)))

struct handle *known_handle(const void *handle)
{
	uintptr_t at = (uintptr_t)handle - (uintptr_t)handles;
	return at < sizeof handles && at % sizeof *handles == 0 ? &handles[at / sizeof *handles] : NULL;
}

static CUresult alias(CUfunction *function, CUkernel kernel)
{
	struct handle *h = known_handle(kernel);
	return function && h && h->counter ? handle_of(function, kernel, h->counter) : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
	BODY(cuKernelGetFunction, 0, NAMED(alias(function, kernel)))

static CUresult name_of(const char **name, const void *handle)
{
	struct handle *h = known_handle(handle);
	if (!name || !h || !h->counter)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = h->counter->name;
	return CUDA_SUCCESS;
}

API CUresult cuKernelGetName(const char **name, CUkernel kernel)
	BODY(cuKernelGetName, 0, NAMED(name_of(name, kernel)))

API CUresult cuFuncGetName(const char **name, CUfunction function)
	BODY(cuFuncGetName, 0, NAMED(name_of(name, function)))
