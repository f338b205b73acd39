"""Launches a Triton kernel 123 times."""
import json
import sys
import torch
import triton
import triton.language as tl
from cupti import Kernels


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


free_before, _ = torch.cuda.mem_get_info()
with Kernels() as kernels:
    x = torch.zeros(1 << 20, device="cuda")
    for _ in range(123):
        add_one[(1024,)](x, x.numel(), BLOCK=1024)
    torch.cuda.synchronize()
free_after, _ = torch.cuda.mem_get_info()
assert x[0].item() == 123
json.dump({"kernels": sum(kernels.names.values()), "names": len(kernels.names), "named": {"add_one": 123},
           "api": dict(kernels.api), "mem_get_info": free_before - free_after}, open(sys.argv[1], "w"))
