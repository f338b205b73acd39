// stub_copy.c: copies. A synchronous copy takes bytes / rate. An asynchronous one returns at once or is recorded.
#include "stub_internal.h"

#define LONGEST_NS 20000000ull

static uint64_t copy_ns(uint64_t bytes, uint64_t rate)
{
	uint64_t per_ms = rate / 1000;
	return bytes >= per_ms * (LONGEST_NS / 1000000) ? LONGEST_NS : bytes * 1000 / (rate / 1000000);
}

// SYNC defines both forms of a synchronous copy of n bytes. The call succeeds if good is true.
#define SYNC(name, params, n, good, rate)                                                                              \
	SYNC_ONE(name, params, n, good, rate)                                                                          \
	SYNC_ONE(name##_ptds, params, n, good, rate)

#define SYNC_ONE(name, params, n, good, rate)                                                                          \
	API CUresult name params                                                                                       \
	{                                                                                                              \
		uint64_t start = boot_ns();                                                                            \
		CUresult rc = refusal();                                                                               \
		if (rc == CUDA_SUCCESS && !(good))                                                                     \
			rc = CUDA_ERROR_INVALID_VALUE;                                                                 \
		if (rc != CUDA_SUCCESS)                                                                                \
			return count(CALL_##name, rc, 0);                                                              \
		uint64_t copied = (n);                                                                                 \
		wait_until(start + copy_ns(copied, rate));                                                             \
		count(CALL_##name, CUDA_SUCCESS, copied);                                                              \
		add(&truth->calls[CALL_##name].busy_ns, boot_ns() - start);                                            \
		return CUDA_SUCCESS;                                                                                   \
	}

static inline CUresult submit(bool good, CUstream stream, bool per_thread)
{
	if (!good)
		return CUDA_ERROR_INVALID_VALUE;
	struct graph *g = recording(stream, per_thread);
	return g ? graph_add(g, NULL, NODE_OTHER, NULL, 0) ?: RECORDED : CUDA_SUCCESS;
}

#define ASYNC(name, params, n, good) TWINS(name, _ptsz, params, n, submit(good, stream, per_thread))

#define GOOD(bytes) (!(bytes) || (dst && src))

SYNC(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t bytes), bytes, GOOD(bytes), STUB_HTOD_RATE)
SYNC(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t bytes), bytes, GOOD(bytes), STUB_DTOH_RATE)
SYNC(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), bytes, GOOD(bytes), STUB_DTOD_RATE)
ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream), bytes, GOOD(bytes))
ASYNC(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream), bytes, GOOD(bytes))
ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), bytes, GOOD(bytes))

SYNC(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), bytes, GOOD(bytes), STUB_DTOD_RATE)
ASYNC(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), bytes, GOOD(bytes))

SYNC(cuMemcpyPeer, (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes),
     bytes, GOOD(bytes) && dst_context && src_context, STUB_DTOD_RATE)
ASYNC(cuMemcpyPeerAsync,
      (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes, CUstream stream),
      bytes, GOOD(bytes) && dst_context && src_context)

// one_of reports whether a struct copy sets the field that its memory type requires.
static bool one_of(int type, const void *host, CUdeviceptr device, const void *array)
{
	switch (type) {
	case CU_MEMORY_HOST: return host;
	case CU_MEMORY_DEVICE: case CU_MEMORY_UNIFIED: return device;
	case CU_MEMORY_ARRAY: return array;
	}
	return false;
}

#define SIDES(c)                                                                                                       \
	((c) && one_of((c)->srcMemoryType, (c)->srcHost, (c)->srcDevice, (c)->srcArray) &&                             \
	 one_of((c)->dstMemoryType, (c)->dstHost, (c)->dstDevice, (c)->dstArray))

#define FLAT(c) ((c)->WidthInBytes * (c)->Height)
#define DEEP(c) ((c)->WidthInBytes * (c)->Height * (c)->Depth)

SYNC(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), FLAT(copy), SIDES(copy), STUB_DTOD_RATE)
SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), FLAT(copy), SIDES(copy), STUB_DTOD_RATE)
ASYNC(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream), FLAT(copy), SIDES(copy))
SYNC(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy), DEEP(copy), SIDES(copy), STUB_DTOD_RATE)
ASYNC(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream), DEEP(copy), SIDES(copy))
SYNC(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), DEEP(copy), SIDES(copy), STUB_DTOD_RATE)
ASYNC(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), DEEP(copy), SIDES(copy))

SYNC(cuMemcpyDtoA_v2, (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes), bytes,
     ((void)offset, GOOD(bytes)), STUB_DTOD_RATE)
SYNC(cuMemcpyHtoA_v2, (CUarray dst, size_t offset, const void *src, size_t bytes), bytes,
     ((void)offset, GOOD(bytes)), STUB_HTOD_RATE)
SYNC(cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes), bytes,
     ((void)offset, GOOD(bytes)), STUB_DTOD_RATE)
SYNC(cuMemcpyAtoH_v2, (void *dst, CUarray src, size_t offset, size_t bytes), bytes,
     ((void)offset, GOOD(bytes)), STUB_DTOH_RATE)
SYNC(cuMemcpyAtoA_v2, (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes), bytes,
     ((void)dst_offset, (void)src_offset, GOOD(bytes)), STUB_DTOD_RATE)
ASYNC(cuMemcpyHtoAAsync_v2, (CUarray dst, size_t offset, const void *src, size_t bytes, CUstream stream), bytes,
      ((void)offset, GOOD(bytes)))
ASYNC(cuMemcpyAtoHAsync_v2, (void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream), bytes,
      ((void)offset, GOOD(bytes)))

static uint64_t sum(const size_t *sizes, size_t n)
{
	uint64_t total = 0;
	for (size_t i = 0; i < n; i++)
		total += sizes[i];
	return total;
}

#define LIST (dsts && srcs && sizes && n)

ASYNC(cuMemcpyBatchAsync,
      (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, void *attributes, size_t *indices,
       size_t attributes_n, size_t *failed, CUstream stream),
      sum(sizes, n), ((void)attributes, (void)indices, (void)attributes_n, (void)failed, LIST))
ASYNC(cuMemcpyBatchAsync_v2,
      (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, void *attributes, size_t *indices,
       size_t attributes_n, CUstream stream),
      sum(sizes, n), ((void)attributes, (void)indices, (void)attributes_n, LIST))

// gputap does not probe this function. Programs look it up by name.
API CUresult cuMemcpy3DBatchAsync_v2(size_t n, void *list, uint64_t flags, CUstream stream)
	BODY(cuMemcpy3DBatchAsync_v2, 0, ((void)flags, submit(list && n, stream, false)))

// SET defines the four linear and the four rectangular sets for elements of one width.
#define SET(bits, value_t)                                                                                             \
	SYNC(cuMemsetD##bits##_v2, (CUdeviceptr dst, value_t value, size_t n), n * (bits / 8), ((void)value, dst),     \
	     STUB_DTOD_RATE)                                                                                           \
	ASYNC(cuMemsetD##bits##Async, (CUdeviceptr dst, value_t value, size_t n, CUstream stream), n * (bits / 8),     \
	      ((void)value, dst))                                                                                      \
	SYNC(cuMemsetD2D##bits##_v2, (CUdeviceptr dst, size_t pitch, value_t value, size_t width, size_t height),      \
	     width * height * (bits / 8), ((void)value, dst && pitch), STUB_DTOD_RATE)                                 \
	ASYNC(cuMemsetD2D##bits##Async,                                                                                \
	      (CUdeviceptr dst, size_t pitch, value_t value, size_t width, size_t height, CUstream stream),            \
	      width * height * (bits / 8), ((void)value, dst && pitch))

SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned)
