// Calls the CUDA runtime and counts the driver calls that follow from that. Prints the counts, and the bytes
// that it leaves allocated, as JSON.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define OK(call) \
	do { \
		cudaError_t e = (call); \
		if (e != cudaSuccess) { \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); \
			exit(1); \
		} \
	} while (0)

__global__ void scale(float *x, float f) { x[threadIdx.x] *= f; }
__global__ void shift(float *x, int n) { x[threadIdx.x] += n; }

static const size_t MiB = 1 << 20;

int main(int argc, char **argv)
{
	FILE *truth = fopen(argc > 1 ? argv[1] : "/dev/stdout", "w");
	float *device[8], *pitched, *managed, *pool, *host;
	size_t pitch;
	OK(cudaSetDevice(0));
	for (int i = 0; i < 8; i++)
		OK(cudaMalloc(&device[i], (i + 1) * MiB));
	if (cudaMalloc(&pool, 1ull << 60) != cudaErrorMemoryAllocation)
		return 1;
	cudaGetLastError();
	if (cudaFree((void *)0x1234) == cudaSuccess)
		return 1;
	cudaGetLastError();
	OK(cudaMallocPitch(&pitched, &pitch, 1000, 100));
	OK(cudaMallocManaged(&managed, 2 * MiB));
	OK(cudaMallocHost(&host, 8 * MiB));
	cudaStream_t stream;
	OK(cudaStreamCreate(&stream));
	for (int i = 0; i < 100; i++) {
		OK(cudaMallocAsync(&pool, MiB, stream));
		OK(cudaFreeAsync(pool, stream));
	}
	for (int i = 0; i < 1000; i++) {
		scale<<<2, 256>>>(device[0], 0.5f);
		if (i % 2)
			shift<<<dim3(1, 2, 3), 128, 64, stream>>>(device[1], i);
	}
	OK(cudaGetLastError());
	for (int i = 0; i < 20; i++) {
		OK(cudaMemcpy(device[7], host, 8 * MiB, cudaMemcpyHostToDevice));
		OK(cudaMemcpy(host, device[7], 4 * MiB, cudaMemcpyDeviceToHost));
		OK(cudaMemcpy(device[6], device[7], 2 * MiB, cudaMemcpyDeviceToDevice));
		OK(cudaMemcpyAsync(device[7], host, MiB, cudaMemcpyHostToDevice, stream));
	}
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	shift<<<1, 64, 0, stream>>>(device[2], 1);
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 50; i++)
		OK(cudaGraphLaunch(exec, stream));
	OK(cudaDeviceSynchronize());
	for (int i = 0; i < 4; i++)
		OK(cudaFree(device[i]));
	fprintf(truth,
		"{\"calls\": {\"cuMemAlloc_v2\": [8, 1], \"cuMemFree_v2\": [4, 1], \"cuMemAllocPitch_v2\": [1, 0],"
		" \"cuMemAllocManaged\": [1, 0], \"cuMemHostAlloc\": [1, 0], \"cuMemAllocAsync\": [100, 0],"
		" \"cuMemFreeAsync\": [100, 0], \"cuLaunchKernel\": [1500, 0], \"cuGraphLaunch\": [50, 0],"
		" \"cuMemcpyHtoD_v2\": [20, 0], \"cuMemcpyDtoH_v2\": [20, 0], \"cuMemcpyDtoD_v2\": [20, 0],"
		" \"cuMemcpyHtoDAsync_v2\": [20, 0]},"
		" \"launches\": {\"scale(float*, float)\": 1000, \"shift(float*, int)\": 550},"
		" \"copies\": {\"HtoD\": %zu, \"DtoH\": %zu, \"DtoD\": %zu},"
		" \"unfreed\": %zu}\n",
		20 * 9 * MiB, 20 * 4 * MiB, 20 * 2 * MiB, (5 + 6 + 7 + 8 + 2) * MiB + pitch * 100);
	fclose(truth);
	return 0;
}
