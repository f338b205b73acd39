// stub.c: devices, contexts, kernel names, launches, copies and waits.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stub_internal.h"

// Every process sees the same handles, as happens with real contexts: a handle alone identifies nothing on a host.
static const uintptr_t contexts[STUB_DEVICES] = { 0x5581c0de0a10, 0x5581c0df37c0 };
static const unsigned char uuids[STUB_DEVICES][16] = {
	{ 0xa0, 0xb1, 0xc2, 0xd3, 0x00, 0x01, 0x42, 0x17, 0x8a, 0x5e, 0x6f, 0x70, 0x81, 0x92, 0xa3, 0xb4 },
	{ 0x1f, 0x2e, 0x3d, 0x4c, 0x11, 0x12, 0x47, 0x5b, 0x9d, 0xc6, 0xb7, 0xa8, 0x99, 0x8a, 0x7b, 0x6c },
};

// What a kernel or function handle points to.
struct handle {
	const void *owner;           // library, module, or the kernel that a function was made from
	struct stub_kernel *counter; // into truth
};

enum { HANDLES_N = 256 };

static pthread_mutex_t names_mu;

// under names_mu
static struct handle handles[HANDLES_N];
static int handles_n;
static uintptr_t images_n; // libraries and modules loaded

static bool initialised;
static __thread int context_device = -1;

void driver_reset(void)
{
	pthread_mutex_init(&names_mu, NULL);
	memset(handles, 0, sizeof handles);
	handles_n = 0;
	images_n = 0;
	initialised = false;
	context_device = -1;
}

int current_device(void)
{
	return context_device;
}

uint64_t monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The last 200 µs are spun, for a sleep wakes up late.
void wait_until(uint64_t monotonic)
{
	enum { SPIN_NS = 200000 };
	uint64_t now = monotonic_ns();
	if (monotonic > now + SPIN_NS) {
		uint64_t wake = monotonic - SPIN_NS;
		struct timespec t = { .tv_sec = (time_t)(wake / 1000000000u), .tv_nsec = (long)(wake % 1000000000u) };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	}
	while (monotonic_ns() < monotonic)
		;
}

static CUresult device_check(const void *out, CUdevice device)
{
	if (!__atomic_load_n(&initialised, __ATOMIC_RELAXED))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (device < 0 || device >= STUB_DEVICES)
		return CUDA_ERROR_INVALID_DEVICE;
	return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuInit(unsigned flags)
{
	if (flags == 0)
		__atomic_store_n(&initialised, true, __ATOMIC_RELAXED);
	return count(CALL_cuInit, flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, 0);
}

API CUresult cuDeviceGetCount(int *n)
{
	CUresult rc = device_check(n, 0);
	if (rc == CUDA_SUCCESS)
		*n = STUB_DEVICES;
	return count(CALL_cuDeviceGetCount, rc, 0);
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult rc = device_check(device, ordinal);
	if (rc == CUDA_SUCCESS)
		*device = ordinal;
	return count(CALL_cuDeviceGet, rc, 0);
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	CUresult rc = length > 0 ? device_check(name, device) : CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS)
		snprintf(name, (size_t)length, "gputap stub GPU %d", device);
	return count(CALL_cuDeviceGetName, rc, 0);
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	CUresult rc = device_check(bytes, device);
	if (rc == CUDA_SUCCESS)
		*bytes = STUB_DEVICE_BYTES;
	return count(CALL_cuDeviceTotalMem_v2, rc, 0);
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	CUresult rc = device_check(uuid, device);
	if (rc == CUDA_SUCCESS)
		memcpy(uuid->bytes, uuids[device], sizeof uuid->bytes);
	return count(CALL_cuDeviceGetUuid, rc, 0);
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult rc = device_check(context, device);
	if (rc == CUDA_SUCCESS)
		*context = (CUcontext)contexts[device];
	return count(CALL_cuDevicePrimaryCtxRetain, rc, 0);
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
	CUresult rc = context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
	int device = -1;
	for (int i = 0; i < STUB_DEVICES; i++) {
		if ((uintptr_t)context == contexts[i]) {
			device = i;
			rc = CUDA_SUCCESS;
		}
	}
	if (rc == CUDA_SUCCESS)
		context_device = device;
	return count(CALL_cuCtxSetCurrent, rc, 0);
}

// kernel_counter is the truth's entry of a name, or NULL when the truth or the entry has no room.
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

// handle_of gives one stable handle per owner and counter.
static CUresult handle_of(void *out, const void *owner, struct stub_kernel *counter)
{
	if (!counter)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct handle *h = handles;
	while (h < handles + handles_n && (h->owner != owner || h->counter != counter))
		h++;
	if (h == handles + HANDLES_N)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (h == handles + handles_n) {
		*h = (struct handle){ .owner = owner, .counter = counter };
		handles_n++;
	}
	memcpy(out, &h, sizeof h);
	return CUDA_SUCCESS;
}

static CUresult look_up(void *out, const void *owner, const char *name)
{
	if (!owner)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&names_mu);
	CUresult rc = handle_of(out, owner, kernel_counter(name));
	pthread_mutex_unlock(&names_mu);
	return rc;
}

static CUresult load_image(void *out, const void *image)
{
	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	uintptr_t handle = 0x5582ab1e0000 + 0x2e0 * __atomic_fetch_add(&images_n, 1, __ATOMIC_RELAXED);
	memcpy(out, &handle, sizeof handle);
	return CUDA_SUCCESS;
}

API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, void *jit_options, void **jit_values,
			       unsigned jit_n, void *library_options, void **library_values, unsigned library_n)
{
	(void)jit_options, (void)jit_values, (void)jit_n, (void)library_options, (void)library_values, (void)library_n;
	return count(CALL_cuLibraryLoadData, load_image(library, code), 0);
}

API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	return count(CALL_cuLibraryGetKernel, look_up(kernel, library, name), 0);
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return count(CALL_cuModuleLoadData, load_image(module, image), 0);
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	return count(CALL_cuModuleGetFunction, look_up(function, module, name), 0);
}

// known_handle is NULL for numbers that are no handle of ours.
static struct handle *known_handle(const void *handle)
{
	uintptr_t at = (uintptr_t)handle - (uintptr_t)handles;
	return at < sizeof handles && at % sizeof *handles == 0 ? &handles[at / sizeof *handles] : NULL;
}

API CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	CUresult rc = CUDA_ERROR_INVALID_HANDLE;
	struct handle *h = known_handle(kernel);
	if (function && h && h->counter) {
		pthread_mutex_lock(&names_mu);
		rc = handle_of(function, kernel, h->counter);
		pthread_mutex_unlock(&names_mu);
	}
	return count(CALL_cuKernelGetFunction, rc, 0);
}

// launch takes no lock and no clock: it is called millions of times a second. A handle of nobody counts as a call only.
static inline CUresult launch(enum call call, const void *handle)
{
	if (!handle)
		return count(call, CUDA_ERROR_INVALID_HANDLE, 0);
	struct handle *h = known_handle(handle);
	if (h && h->counter)
		add(&h->counter->launches, 1);
	return count(call, CUDA_SUCCESS, 0);
}

API STUB_LAUNCH_KERNEL(cuLaunchKernel)
{
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
	(void)shared_bytes, (void)stream, (void)params, (void)extra;
	return launch(CALL_cuLaunchKernel, f);
}

API STUB_LAUNCH_KERNEL(cuLaunchKernel_ptsz)
{
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
	(void)shared_bytes, (void)stream, (void)params, (void)extra;
	return launch(CALL_cuLaunchKernel_ptsz, f);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	(void)config, (void)params, (void)extra;
	return launch(CALL_cuLaunchKernelEx, f);
}

API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	(void)config, (void)params, (void)extra;
	return launch(CALL_cuLaunchKernelEx_ptsz, f);
}

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	(void)stream;
	return launch(CALL_cuGraphLaunch, exec);
}

// COPY defines the four forms of one direction: the two that last bytes / rate, and the two that return at once.
#define COPY(name, dst_t, src_t, rate)                                                                                 \
	COPY_SYNC(name##_v2, dst_t, src_t, rate)                                                                       \
	COPY_SYNC(name##_v2_ptds, dst_t, src_t, rate)                                                                  \
	COPY_ASYNC(name##Async_v2, dst_t, src_t)                                                                       \
	COPY_ASYNC(name##Async_v2_ptsz, dst_t, src_t)

#define COPY_SYNC(name, dst_t, src_t, rate)                                                                            \
	API CUresult name(dst_t dst, src_t src, size_t bytes)                                                          \
	{                                                                                                              \
		uint64_t start = monotonic_ns();                                                                       \
		if (bytes && (!dst || !src))                                                                           \
			return count(CALL_##name, CUDA_ERROR_INVALID_VALUE, 0);                                        \
		wait_until(start + bytes * 1000 / (rate / 1000000));                                                   \
		count(CALL_##name, CUDA_SUCCESS, bytes);                                                               \
		add(&truth->calls[CALL_##name].busy_ns, monotonic_ns() - start);                                       \
		return CUDA_SUCCESS;                                                                                   \
	}

#define COPY_ASYNC(name, dst_t, src_t)                                                                                 \
	API CUresult name(dst_t dst, src_t src, size_t bytes, CUstream stream)                                         \
	{                                                                                                              \
		(void)stream;                                                                                          \
		CUresult rc = bytes && (!dst || !src) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;                       \
		return count(CALL_##name, rc, bytes);                                                                  \
	}

COPY(cuMemcpyHtoD, CUdeviceptr, const void *, STUB_HTOD_RATE)
COPY(cuMemcpyDtoH, void *, CUdeviceptr, STUB_DTOH_RATE)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr, STUB_DTOD_RATE)

API CUresult cuCtxSynchronize(void)
{
	return count(CALL_cuCtxSynchronize, current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS, 0);
}

API CUresult cuStreamSynchronize(CUstream stream)
{
	(void)stream;
	return count(CALL_cuStreamSynchronize, current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS, 0);
}

API void stubNop(uint64_t a, uint64_t b, uint64_t c)
{
	(void)a, (void)b, (void)c;
	keep_frame();
}
