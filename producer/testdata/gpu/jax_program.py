import json
import os
import sys

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
from cupti import Kernels, filled
import jax
import jax.numpy as jnp

with Kernels() as kernels:
    step = jax.jit(lambda a, b: jnp.tanh(a @ b) + a)
    a = jnp.ones((1024, 1024))
    for _ in range(100):
        a = step(a, a)
    a.block_until_ready()
    took = filled(lambda n: jax.device_put(jnp.zeros(n, dtype=jnp.uint8)).block_until_ready())
stats = jax.devices()[0].memory_stats() or {}
json.dump({
    "filled": took, "by_name": dict(kernels.names),
    "kernels": sum(kernels.names.values()), "names": len(kernels.names), "api": dict(kernels.api),
    "pool": stats.get("pool_bytes"),
}, open(sys.argv[1], "w"))
