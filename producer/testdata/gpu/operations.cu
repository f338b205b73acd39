// Calls every operation of the CUDA runtime that moves or holds memory, submits work or waits, once each.
// Prints one line of JSON for each event that gputap must report, in order, from the arguments and results
// of the program's own calls.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <sys/mman.h>

#define OK(call) \
	do { \
		cudaError_t error_ = (call); \
		if (error_ != cudaSuccess) { \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error_)); \
			exit(1); \
		} \
	} while (0)

__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
__global__ void thrice(float *x) { x[threadIdx.x] *= 3; }

static FILE *truth;
static int operations;

static void see(const char *operation, const char *op, const char *cls, const char *direction, size_t bytes, int result)
{
	fprintf(truth, "{\"operation\": \"%s\", \"op\": \"%s\", \"class\": \"%s\", \"direction\": \"%s\", \"bytes\": %zu, \"result\": %d}\n",
		operation, op, cls, direction, bytes, result);
	operations++;
}

#define MEMORY(operation, op, cls, bytes) see(operation, op, cls, "", bytes, 0)
#define COPY(operation, op, direction, bytes) see(operation, op, "", direction, bytes, 0)
#define OTHER(operation, op) see(operation, op, "", "", 0, 0)

static void on_host(void *) {}

static const size_t K = 1 << 10, M = 1 << 20;

static void allocations(cudaStream_t stream)
{
	void *p, *q;
	OK(cudaMalloc(&p, 3 * M + 1)); MEMORY("cudaMalloc", "alloc", "device", 3 * M + 1);
	OK(cudaFree(p)); MEMORY("cudaFree", "free", "device", 0);
	if (cudaMalloc(&q, 1ull << 60) == cudaSuccess) exit(1);
	cudaGetLastError(); see("cudaMalloc too much", "alloc", "device", "", 1ull << 60, 2);
	if (cudaFree((void *)0x1234) == cudaSuccess) exit(1);
	cudaGetLastError(); see("cudaFree of nothing", "free", "device", "", 0, 1);
	OK(cudaMallocManaged(&p, 5 * M)); MEMORY("cudaMallocManaged", "alloc", "managed", 5 * M);
	cudaMemLocation here = {cudaMemLocationTypeDevice, 0};
	OK(cudaMemPrefetchAsync(p, 2 * M, here, 0, stream)); MEMORY("cudaMemPrefetchAsync", "prefetch", "managed", 2 * M);
	OK(cudaFree(p)); MEMORY("cudaFree managed", "free", "device", 0);
	OK(cudaMallocHost(&p, 7 * K)); MEMORY("cudaMallocHost", "alloc", "pinned", 7 * K);
	OK(cudaFreeHost(p)); MEMORY("cudaFreeHost", "free", "pinned", 0);
	OK(cudaHostAlloc(&p, 9 * K, cudaHostAllocMapped)); MEMORY("cudaHostAlloc", "alloc", "pinned", 9 * K);
	OK(cudaFreeHost(p)); MEMORY("cudaFreeHost", "free", "pinned", 0);
	p = mmap(0, 64 * K, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(cudaHostRegister(p, 48 * K, 0)); MEMORY("cudaHostRegister", "alloc", "registered", 48 * K);
	OK(cudaHostUnregister(p)); MEMORY("cudaHostUnregister", "free", "registered", 0);
	size_t pitch;
	OK(cudaMallocPitch(&p, &pitch, 1001, 77)); MEMORY("cudaMallocPitch", "alloc", "device", pitch * 77);
	OK(cudaFree(p)); MEMORY("cudaFree", "free", "device", 0);
	cudaPitchedPtr cube;
	OK(cudaMalloc3D(&cube, make_cudaExtent(501, 11, 3))); MEMORY("cudaMalloc3D", "alloc", "device", cube.pitch * 33);
	OK(cudaFree(cube.ptr)); MEMORY("cudaFree", "free", "device", 0);
	cudaChannelFormatDesc four = cudaCreateChannelDesc<float4>();
	cudaArray_t array;
	OK(cudaMallocArray(&array, &four, 128, 32)); MEMORY("cudaMallocArray", "alloc", "array", 128 * 32 * 16);
	OK(cudaFreeArray(array)); MEMORY("cudaFreeArray", "free", "array", 0);
	OK(cudaMalloc3DArray(&array, &four, make_cudaExtent(64, 32, 4))); MEMORY("cudaMalloc3DArray", "alloc", "array", 64 * 32 * 4 * 16);
	OK(cudaFreeArray(array)); MEMORY("cudaFreeArray", "free", "array", 0);
	cudaMipmappedArray_t mip;
	OK(cudaMallocMipmappedArray(&mip, &four, make_cudaExtent(64, 64, 0), 3));
	MEMORY("cudaMallocMipmappedArray", "alloc", "array", (64 * 64 + 32 * 32 + 16 * 16) * 16);
	OK(cudaFreeMipmappedArray(mip)); MEMORY("cudaFreeMipmappedArray", "free", "array", 0);
	OK(cudaMallocAsync(&p, 6 * M, stream)); MEMORY("cudaMallocAsync", "alloc", "pool", 6 * M);
	OK(cudaFreeAsync(p, stream)); MEMORY("cudaFreeAsync", "free", "pool", 0);
	cudaMemPool_t pool;
	cudaMemPoolProps props = {};
	props.allocType = cudaMemAllocationTypePinned;
	props.location = here;
	OK(cudaMemPoolCreate(&pool, &props)); MEMORY("cudaMemPoolCreate", "pool_create", "pool", 0);
	OK(cudaMallocFromPoolAsync(&p, 4 * M, pool, stream)); MEMORY("cudaMallocFromPoolAsync", "alloc", "pool", 4 * M);
	OK(cudaFreeAsync(p, stream)); MEMORY("cudaFreeAsync", "free", "pool", 0);
	OK(cudaMemPoolTrimTo(pool, 1 * M)); MEMORY("cudaMemPoolTrimTo", "pool_trim", "pool", 1 * M);
	OK(cudaMemPoolDestroy(pool)); MEMORY("cudaMemPoolDestroy", "pool_destroy", "pool", 0);
	OK(cudaMalloc(&p, 2 * M)); MEMORY("cudaMalloc", "alloc", "device", 2 * M);
	cudaIpcMemHandle_t handle;
	OK(cudaIpcGetMemHandle(&handle, p)); MEMORY("cudaIpcGetMemHandle", "export", "device", 0);
	OK(cudaFree(p)); MEMORY("cudaFree", "free", "device", 0);
	size_t free_bytes, total_bytes;
	OK(cudaMemGetInfo(&free_bytes, &total_bytes)); MEMORY("cudaMemGetInfo", "mem_info", "", total_bytes - free_bytes);
}

static void copies(cudaStream_t stream)
{
	char *d, *e, *h, *g;
	OK(cudaMalloc(&d, M)); MEMORY("cudaMalloc", "alloc", "device", M);
	OK(cudaMalloc(&e, M)); MEMORY("cudaMalloc", "alloc", "device", M);
	OK(cudaMallocHost(&h, M)); MEMORY("cudaMallocHost", "alloc", "pinned", M);
	OK(cudaMallocHost(&g, M)); MEMORY("cudaMallocHost", "alloc", "pinned", M);
	OK(cudaMemcpy(d, h, 1001, cudaMemcpyHostToDevice)); COPY("cudaMemcpy HtoD", "copy", "HtoD", 1001);
	OK(cudaMemcpy(h, d, 1003, cudaMemcpyDeviceToHost)); COPY("cudaMemcpy DtoH", "copy", "DtoH", 1003);
	OK(cudaMemcpy(e, d, 1005, cudaMemcpyDeviceToDevice)); COPY("cudaMemcpy DtoD", "copy", "DtoD", 1005);
	OK(cudaMemcpy(d, h, 1007, cudaMemcpyDefault)); COPY("cudaMemcpy default", "copy", "default", 1007);
	OK(cudaMemcpy(g, h, 1009, cudaMemcpyHostToHost)); COPY("cudaMemcpy HtoH", "copy", "HtoH", 1009);
	OK(cudaMemcpyAsync(d, h, 2001, cudaMemcpyHostToDevice, stream)); COPY("cudaMemcpyAsync HtoD", "copy_async", "HtoD", 2001);
	OK(cudaMemcpyAsync(h, d, 2003, cudaMemcpyDeviceToHost, stream)); COPY("cudaMemcpyAsync DtoH", "copy_async", "DtoH", 2003);
	OK(cudaMemcpyAsync(e, d, 2005, cudaMemcpyDeviceToDevice, stream)); COPY("cudaMemcpyAsync DtoD", "copy_async", "DtoD", 2005);
	OK(cudaMemcpyAsync(d, h, 2007, cudaMemcpyDefault, stream)); COPY("cudaMemcpyAsync default", "copy_async", "default", 2007);
	OK(cudaMemcpy2D(d, 512, h, 256, 200, 30, cudaMemcpyHostToDevice)); COPY("cudaMemcpy2D", "copy", "HtoD", 200 * 30);
	OK(cudaMemcpy2DAsync(h, 256, d, 512, 150, 20, cudaMemcpyDeviceToHost, stream));
	COPY("cudaMemcpy2DAsync", "copy_async", "DtoH", 150 * 20);
	cudaChannelFormatDesc one = cudaCreateChannelDesc<float>();
	cudaArray_t array;
	OK(cudaMallocArray(&array, &one, 64, 64)); MEMORY("cudaMallocArray", "alloc", "array", 64 * 64 * 4);
	OK(cudaMemcpy2DToArray(array, 0, 0, h, 256, 128, 16, cudaMemcpyHostToDevice));
	COPY("cudaMemcpy2DToArray", "copy", "HtoD", 128 * 16);
	OK(cudaMemcpy2DFromArray(h, 256, array, 0, 0, 64, 8, cudaMemcpyDeviceToHost));
	COPY("cudaMemcpy2DFromArray", "copy", "DtoH", 64 * 8);
	cudaMemcpy3DParms cube = {};
	cube.srcPtr = make_cudaPitchedPtr(h, 256, 256, 16);
	cube.dstPtr = make_cudaPitchedPtr(d, 256, 256, 16);
	cube.extent = make_cudaExtent(100, 10, 5);
	cube.kind = cudaMemcpyHostToDevice;
	OK(cudaMemcpy3D(&cube)); COPY("cudaMemcpy3D", "copy", "HtoD", 100 * 10 * 5);
	cube.extent = make_cudaExtent(90, 9, 4);
	OK(cudaMemcpy3DAsync(&cube, stream)); COPY("cudaMemcpy3DAsync", "copy_async", "HtoD", 90 * 9 * 4);
	OK(cudaMemcpyPeer(e, 0, d, 0, 3001)); COPY("cudaMemcpyPeer", "copy", "PtoP", 3001);
	OK(cudaMemcpyPeerAsync(e, 0, d, 0, 3003, stream)); COPY("cudaMemcpyPeerAsync", "copy_async", "PtoP", 3003);
	OK(cudaMemset(d, 1, 4001)); COPY("cudaMemset", "set", "", 4001);
	OK(cudaMemsetAsync(d, 1, 4003, stream)); COPY("cudaMemsetAsync", "set_async", "", 4003);
	OK(cudaMemset2D(d, 512, 1, 111, 7)); COPY("cudaMemset2D", "set", "", 111 * 7);
	OK(cudaMemset2DAsync(d, 512, 1, 113, 9, stream)); COPY("cudaMemset2DAsync", "set_async", "", 113 * 9);
	OK(cudaFreeArray(array)); MEMORY("cudaFreeArray", "free", "array", 0);
	void *destinations[] = {d, d + 8192}, *sources[] = {h, h + 8192};
	size_t sizes[] = {1234, 4321};
	cudaMemcpyAttributes order = {};
	order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
	size_t index = 0;
	OK(cudaMemcpyBatchAsync((const void **)destinations, (const void **)sources, sizes, 2, &order, &index, 1, stream));
	COPY("cudaMemcpyBatchAsync", "copy_async", "default", 1234 + 4321);
	OK(cudaStreamSynchronize(stream)); OTHER("cudaStreamSynchronize", "sync");
	OK(cudaFreeHost(h)); MEMORY("cudaFreeHost", "free", "pinned", 0);
	OK(cudaFreeHost(g)); MEMORY("cudaFreeHost", "free", "pinned", 0);
	OK(cudaFree(d)); MEMORY("cudaFree", "free", "device", 0);
	OK(cudaFree(e)); MEMORY("cudaFree", "free", "device", 0);
}

static void launches(cudaStream_t stream)
{
	float *d;
	OK(cudaMalloc(&d, M)); MEMORY("cudaMalloc", "alloc", "device", M);
	twice<<<3, 64>>>(d); OTHER("kernel<<<>>>", "launch");
	void *arguments[] = {&d};
	OK(cudaLaunchKernel((const void *)thrice, dim3(2, 3), dim3(32, 2), arguments, 128, stream)); OTHER("cudaLaunchKernel", "launch");
	OK(cudaLaunchCooperativeKernel((const void *)twice, dim3(1), dim3(32), arguments, 0, stream));
	OTHER("cudaLaunchCooperativeKernel", "launch");
	cudaLaunchConfig_t config = {};
	config.gridDim = dim3(4);
	config.blockDim = dim3(16);
	config.stream = stream;
	OK(cudaLaunchKernelExC(&config, (const void *)thrice, arguments)); OTHER("cudaLaunchKernelExC", "launch");
	OK(cudaLaunchHostFunc(stream, on_host, 0)); OTHER("cudaLaunchHostFunc", "host_func");
	cudaEvent_t begin, end;
	cudaStream_t side;
	OK(cudaEventCreate(&begin));
	OK(cudaEventCreate(&end));
	OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking)); OTHER("cudaStreamCreateWithFlags", "stream_create");
	OK(cudaEventRecord(begin, stream)); OTHER("cudaEventRecord", "event_record");
	OK(cudaStreamWaitEvent(side, begin, 0)); OTHER("cudaStreamWaitEvent", "wait_event");
	OK(cudaEventRecord(end, stream)); OTHER("cudaEventRecord", "event_record");
	OK(cudaEventSynchronize(end)); OTHER("cudaEventSynchronize", "sync");
	OK(cudaEventQuery(end)); OTHER("cudaEventQuery", "query");
	OK(cudaStreamSynchronize(side)); OTHER("cudaStreamSynchronize", "sync");
	OK(cudaStreamQuery(side)); OTHER("cudaStreamQuery", "query");
	float ms;
	OK(cudaEventElapsedTime(&ms, begin, end)); OTHER("cudaEventElapsedTime", "elapsed");
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	twice<<<1, 32, 0, stream>>>(d); OTHER("kernel<<<>>> captured", "record");
	OK(cudaEventRecord(begin, stream)); OTHER("cudaEventRecord captured", "event_record");
	OK(cudaStreamWaitEvent(side, begin, 0)); OTHER("cudaStreamWaitEvent captured", "wait_event");
	thrice<<<1, 32, 0, side>>>(d); OTHER("kernel<<<>>> on a captured side stream", "record");
	OK(cudaMemsetAsync(d, 0, 512, side)); see("cudaMemsetAsync captured", "record", "", "", 512, 0);
	OK(cudaEventRecord(end, side)); OTHER("cudaEventRecord captured", "event_record");
	OK(cudaStreamWaitEvent(stream, end, 0)); OTHER("cudaStreamWaitEvent captured", "wait_event");
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, stream)); OTHER("cudaGraphLaunch", "graph_launch");
	OK(cudaDeviceSynchronize()); OTHER("cudaDeviceSynchronize", "sync");
	thrice<<<1, 32, 0, side>>>(d); OTHER("kernel<<<>>> after the capture", "launch");
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(side)); OTHER("cudaStreamDestroy", "stream_destroy");
	OK(cudaFree(d)); MEMORY("cudaFree", "free", "device", 0);
}

int main(int argc, char **argv)
{
	truth = fopen(argc > 1 ? argv[1] : "/dev/stdout", "w");
	cudaStream_t stream;
	OK(cudaSetDevice(0));
	OK(cudaStreamCreate(&stream)); OTHER("cudaStreamCreate", "stream_create");
	allocations(stream);
	copies(stream);
	launches(stream);
	OK(cudaStreamDestroy(stream)); OTHER("cudaStreamDestroy", "stream_destroy");
	OK(cudaDeviceReset()); MEMORY("cudaDeviceReset", "context_reset", "", 0);
	fprintf(stderr, "%d operations\n", operations);
	fclose(truth);
	return 0;
}
