// Allocates memory on each device that an argument names, prints the UUIDs and bytes as JSON, and waits for
// the end of its input.   usage: two_gpus DEVICE:MIB…
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

int main(int argc, char **argv)
{
	printf("[");
	for (int i = 1; i < argc; i++) {
		int device, mib;
		void *p;
		cudaDeviceProp prop;
		if (sscanf(argv[i], "%d:%d", &device, &mib) != 2 || cudaSetDevice(device) || cudaMalloc(&p, (size_t)mib << 20) ||
		    cudaGetDeviceProperties(&prop, device))
			return 1;
		const unsigned char *u = (const unsigned char *)prop.uuid.bytes;
		printf("%s{\"ordinal\": %d, \"bytes\": %zu, \"uuid\": \"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\"}",
			i > 1 ? ", " : "", device, (size_t)mib << 20, u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10],
			u[11], u[12], u[13], u[14], u[15]);
	}
	printf("]\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
