import json
import sys
import cupy
from cupti import Kernels, filled

with Kernels() as kernels:
    add = cupy.RawKernel(r'extern "C" __global__ void gputap_add(float* x) { x[threadIdx.x] += 1; }', "gputap_add")
    x = cupy.zeros(1 << 20, dtype=cupy.float32)
    for _ in range(300):
        add((4,), (128,), (x,))
    y = x
    for _ in range(50):
        y = cupy.sin(y) @ cupy.ones((1 << 20, 1), dtype=cupy.float32) * x
    cupy.cuda.Device().synchronize()
    took = filled(lambda n: cupy.empty(n, dtype=cupy.uint8))
json.dump({
    "filled": took, "by_name": dict(kernels.names),
    "kernels": sum(kernels.names.values()), "names": len(kernels.names), "named": {"gputap_add": 300},
    "pool_bytes": cupy.get_default_memory_pool().total_bytes(), "api": dict(kernels.api),
}, open(sys.argv[1], "w"))
