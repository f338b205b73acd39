// workload_rows_copy.c: rows of copies and sets. Addresses are only numbers, because the stub copies nothing.
#include "workload_rows.h"

#define SAY_COPY(operation, way, stream_text)                                                                          \
	say("kind=copy op=" operation " direction=" way " dst=%#lx src=%#lx bytes=%lu " stream_text, value(1), value(2), \
	    value(3))

#define D(k) PLACE(CUdeviceptr, k)
#define H(k) PLACE(void *, k)
#define A(k) PLACE(CUarray, k)
#define C(k) PLACE(CUcontext, k)
#define STREAM PLACE(CUstream, 9)

// Amounts of copies use 64 bits, because no memory is needed.
#define COPY_SYNC(symbol, direction, ...)                                                                              \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(__VA_ARGS__));                                                                             \
		SAY_COPY("copy", direction, "");                                                                       \
	}

#define COPY_ASYNC(symbol, direction, ...)                                                                             \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(__VA_ARGS__, STREAM));                                                                     \
		SAY_COPY("copy_async", direction, "");                                                                 \
		say("stream=%#lx ", value(9));                                                                         \
	}

#define COPY_PTDS(symbol, ...) COPY_SYNC(symbol, __VA_ARGS__) COPY_SYNC(symbol##_ptds, __VA_ARGS__)
#define COPY_PTSZ(symbol, ...) COPY_ASYNC(symbol, __VA_ARGS__) COPY_ASYNC(symbol##_ptsz, __VA_ARGS__)

COPY_PTDS(cuMemcpyHtoD_v2, "HtoD", D(1), H(2), value(3))
COPY_PTDS(cuMemcpyDtoH_v2, "DtoH", H(1), D(2), value(3))
COPY_PTDS(cuMemcpyDtoD_v2, "DtoD", D(1), D(2), value(3))
COPY_PTSZ(cuMemcpyHtoDAsync_v2, "HtoD", D(1), H(2), value(3))
COPY_PTSZ(cuMemcpyDtoHAsync_v2, "DtoH", H(1), D(2), value(3))
COPY_PTSZ(cuMemcpyDtoDAsync_v2, "DtoD", D(1), D(2), value(3))
COPY_PTDS(cuMemcpy, "default", D(1), D(2), value(3))
COPY_PTSZ(cuMemcpyAsync, "default", D(1), D(2), value(3))
COPY_PTDS(cuMemcpyPeer, "PtoP", D(1), C(4), D(2), C(5), value(3))
COPY_PTSZ(cuMemcpyPeerAsync, "PtoP", D(1), C(4), D(2), C(5), value(3))
COPY_PTDS(cuMemcpyDtoA_v2, "DtoD", A(1), value(4), D(2), value(3))
COPY_PTDS(cuMemcpyHtoA_v2, "HtoD", A(1), value(4), H(2), value(3))
COPY_PTDS(cuMemcpyAtoD_v2, "DtoD", D(1), A(2), value(4), value(3))
COPY_PTDS(cuMemcpyAtoH_v2, "DtoH", H(1), A(2), value(4), value(3))
COPY_PTDS(cuMemcpyAtoA_v2, "DtoD", A(1), value(4), A(2), value(5), value(3))
COPY_PTSZ(cuMemcpyHtoAAsync_v2, "HtoD", A(1), value(4), H(2), value(3))
COPY_PTSZ(cuMemcpyAtoHAsync_v2, "DtoH", H(1), A(2), value(4), value(3))

// Every field of a struct is set, so that a read of the wrong field is detected. The types select dst and src.
#define FILL(copy, src_type, dst_type)                                                                                 \
	do {                                                                                                           \
		(copy)->srcXInBytes = value(20);                                                                       \
		(copy)->srcY = value(21);                                                                              \
		(copy)->srcMemoryType = (src_type);                                                                    \
		(copy)->srcHost = H(22);                                                                               \
		(copy)->srcDevice = D(23);                                                                             \
		(copy)->srcArray = A(24);                                                                              \
		(copy)->srcPitch = value(25);                                                                          \
		(copy)->dstXInBytes = value(30);                                                                       \
		(copy)->dstY = value(31);                                                                              \
		(copy)->dstMemoryType = (dst_type);                                                                    \
		(copy)->dstHost = H(32);                                                                               \
		(copy)->dstDevice = D(33);                                                                             \
		(copy)->dstArray = A(34);                                                                              \
		(copy)->dstPitch = value(35);                                                                          \
		(copy)->WidthInBytes = 0x10000 + value(36) % 0x10000;                                                  \
		(copy)->Height = 0x20000 + value(37) % 0x10000;                                                        \
	} while (0)

static CUDA_MEMCPY2D flat(int src_type, int dst_type)
{
	CUDA_MEMCPY2D c;
	FILL(&c, src_type, dst_type);
	return c;
}

static CUDA_MEMCPY3D deep(int src_type, int dst_type)
{
	CUDA_MEMCPY3D c = {
		.srcZ = value(40), .srcLOD = value(41), .srcContext = C(42), .srcHeight = value(43), .dstZ = value(44),
		.dstLOD = value(45), .dstContext = C(46), .dstHeight = value(47), .Depth = 0x100 + value(48) % 0x100,
	};
	FILL(&c, src_type, dst_type);
	return c;
}

static void say_sides(const char *operation, int src_type, int dst_type)
{
	say("kind=copy op=%s src_type=%d dst_type=%d src_host=%#lx src_device=%#lx src_array=%#lx dst_host=%#lx "
	    "dst_device=%#lx dst_array=%#lx ",
	    operation, src_type, dst_type, value(22), value(23), value(24), value(32), value(33), value(34));
}

#define STRUCT_ROW(symbol, variant, text, can_fail, operation, form, extent, src_type, dst_type, ...)                  \
	ROW_AS(symbol, variant, text, can_fail)                                                                        \
	{                                                                                                              \
		__auto_type copy = form(src_type, dst_type);                                                           \
		CALL(symbol(&copy __VA_OPT__(, ) __VA_ARGS__));                                                        \
		say_sides(operation, src_type, dst_type);                                                              \
		extent(&copy);                                                                                         \
	}

#define EXTENT2(c) say("width=%zu height=%zu depth=1 ", (c)->WidthInBytes, (c)->Height)
#define EXTENT3(c) say("width=%zu height=%zu depth=%zu ", (c)->WidthInBytes, (c)->Height, (c)->Depth)
#define EXTENT2S(c) (EXTENT2(c), say("stream=%#lx ", value(9)))
#define EXTENT3S(c) (EXTENT3(c), say("stream=%#lx ", value(9)))
#define EXTENT3P(c) (EXTENT3(c), say("direction=PtoP "))
#define EXTENT3PS(c) (EXTENT3S(c), say("direction=PtoP "))

// The forms of a struct copy cover all pairs of memory types.
#define FLAT_SYNC(symbol, a, b, c, d)                                                                                  \
	STRUCT_ROW(symbol, , "", true, "copy", flat, EXTENT2, a, b)                                                    \
	STRUCT_ROW(symbol, _other, "other", false, "copy", flat, EXTENT2, c, d)
#define FLAT_ASYNC(symbol, a, b, c, d)                                                                                 \
	STRUCT_ROW(symbol, , "", true, "copy_async", flat, EXTENT2S, a, b, STREAM)                                     \
	STRUCT_ROW(symbol, _other, "other", false, "copy_async", flat, EXTENT2S, c, d, STREAM)
#define DEEP_SYNC(symbol, extent, a, b, c, d)                                                                          \
	STRUCT_ROW(symbol, , "", true, "copy", deep, extent, a, b)                                                     \
	STRUCT_ROW(symbol, _other, "other", false, "copy", deep, extent, c, d)
#define DEEP_ASYNC(symbol, extent, a, b, c, d)                                                                         \
	STRUCT_ROW(symbol, , "", true, "copy_async", deep, extent, a, b, STREAM)                                       \
	STRUCT_ROW(symbol, _other, "other", false, "copy_async", deep, extent, c, d, STREAM)

FLAT_SYNC(cuMemcpy2D_v2, 1, 2, 2, 4)
FLAT_SYNC(cuMemcpy2D_v2_ptds, 2, 1, 4, 4)
FLAT_SYNC(cuMemcpy2DUnaligned_v2, 1, 1, 3, 1)
FLAT_SYNC(cuMemcpy2DUnaligned_v2_ptds, 2, 2, 1, 3)
FLAT_ASYNC(cuMemcpy2DAsync_v2, 3, 2, 4, 1)
FLAT_ASYNC(cuMemcpy2DAsync_v2_ptsz, 2, 3, 3, 3)
DEEP_SYNC(cuMemcpy3D_v2, EXTENT3, 1, 2, 2, 4)
DEEP_SYNC(cuMemcpy3D_v2_ptds, EXTENT3, 3, 1, 4, 4)
DEEP_ASYNC(cuMemcpy3DAsync_v2, EXTENT3S, 2, 1, 1, 1)
DEEP_ASYNC(cuMemcpy3DAsync_v2_ptsz, EXTENT3S, 1, 3, 3, 2)
DEEP_SYNC(cuMemcpy3DPeer, EXTENT3P, 2, 2, 3, 2)
DEEP_SYNC(cuMemcpy3DPeer_ptds, EXTENT3P, 2, 3, 2, 2)
DEEP_ASYNC(cuMemcpy3DPeerAsync, EXTENT3PS, 3, 3, 2, 2)
DEEP_ASYNC(cuMemcpy3DPeerAsync_ptsz, EXTENT3PS, 2, 2, 3, 2)

// The amount of a batch is the sum over its entries. Its dst and src are those of the first entry.
struct batch {
	CUdeviceptr dsts[5], srcs[5];
	size_t sizes[5];
	unsigned char attributes[64];
	size_t indices[1];
};

static struct batch batch(void)
{
	struct batch b = { .attributes = { 1 } };
	for (int i = 0; i < 5; i++) {
		b.dsts[i] = value(20 + i);
		b.srcs[i] = value(30 + i);
		b.sizes[i] = amount(40 + i);
	}
	return b;
}

static void say_batch(const struct batch *b)
{
	say("kind=copy op=copy_async direction=default dst=%#llx src=%#llx stream=%#lx sizes=", b->dsts[0], b->srcs[0],
	    value(9));
	for (int i = 0; i < 5; i++)
		say("%s%zu", i ? "," : "", b->sizes[i]);
	say(" ");
}

#define ROW_BATCH(symbol, ...)                                                                                         \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		struct batch b = batch();                                                                              \
		size_t failed __attribute__((unused)) = 0;                                                             \
		CALL(symbol(b.dsts, b.srcs, b.sizes, 5, b.attributes, b.indices, 1, __VA_ARGS__));                     \
		say_batch(&b);                                                                                         \
	}
ROW_BATCH(cuMemcpyBatchAsync, &failed, STREAM)
ROW_BATCH(cuMemcpyBatchAsync_ptsz, &failed, STREAM)
ROW_BATCH(cuMemcpyBatchAsync_v2, STREAM)
ROW_BATCH(cuMemcpyBatchAsync_v2_ptsz, STREAM)

#define SET_ROW(symbol, operation, width, value_t, text, ...)                                                          \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		CALL(symbol(D(1), (value_t)value(2), amount(3) __VA_OPT__(, ) __VA_ARGS__));                           \
		say("kind=copy op=" operation " dst=%#lx elements=%lu unit=" #width " ", value(1), amount(3));         \
		text;                                                                                                  \
	}
#define SET2D_ROW(symbol, operation, width, value_t, text, ...)                                                        \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		size_t n = 0x10000 + value(3) % 0x10000, rows = 0x30000 + value(4) % 0x10000;                          \
		CALL(symbol(D(1), value(5), (value_t)value(2), n, rows __VA_OPT__(, ) __VA_ARGS__));                   \
		say("kind=copy op=" operation " dst=%#lx elements=%lu unit=" #width " ", value(1), n * rows);          \
		text;                                                                                                  \
	}
#define SAY_STREAM say("stream=%#lx ", value(9))

#define SET_ROWS(bits, width, value_t)                                                                                 \
	SET_ROW(cuMemsetD##bits##_v2, "set", width, value_t, )                                                         \
	SET_ROW(cuMemsetD##bits##_v2_ptds, "set", width, value_t, )                                                    \
	SET_ROW(cuMemsetD##bits##Async, "set_async", width, value_t, SAY_STREAM, STREAM)                               \
	SET_ROW(cuMemsetD##bits##Async_ptsz, "set_async", width, value_t, SAY_STREAM, STREAM)                          \
	SET2D_ROW(cuMemsetD2D##bits##_v2, "set", width, value_t, )                                                     \
	SET2D_ROW(cuMemsetD2D##bits##_v2_ptds, "set", width, value_t, )                                                \
	SET2D_ROW(cuMemsetD2D##bits##Async, "set_async", width, value_t, SAY_STREAM, STREAM)                           \
	SET2D_ROW(cuMemsetD2D##bits##Async_ptsz, "set_async", width, value_t, SAY_STREAM, STREAM)

SET_ROWS(8, 1, unsigned char)
SET_ROWS(16, 2, unsigned short)
SET_ROWS(32, 4, unsigned)
