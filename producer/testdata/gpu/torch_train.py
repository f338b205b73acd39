"""Runs a PyTorch training loop and writes the figures of CUPTI, torch.cuda.memory_stats and cuMemGetInfo."""
import contextlib
import json
import os
import sys
import torch
from cupti import Kernels, filled

STEPS, BATCH, WIDTH = int(os.environ.get("STEPS", 60)), 512, 1024
free_before, _ = torch.cuda.mem_get_info()
counted = Kernels() if STEPS <= 60 else contextlib.nullcontext(Kernels.none())
with counted as kernels:
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(6)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    host = torch.randn(BATCH, WIDTH).pin_memory()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(host.to("cuda", non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
    took = filled(lambda n: torch.empty(n, dtype=torch.uint8, device="cuda"))
stats = torch.cuda.memory_stats()
free_after, _ = torch.cuda.mem_get_info()
json.dump({
    "kernels": sum(kernels.names.values()), "names": len(kernels.names),
    "num_device_alloc": stats.get("num_device_alloc"), "num_device_free": stats.get("num_device_free"),
    "reserved": stats.get("reserved_bytes.all.current"), "reserved_peak": stats.get("reserved_bytes.all.peak"),
    "mem_get_info": free_before - free_after, "filled": took, "by_name": dict(kernels.names), "htod_bytes": STEPS * BATCH * WIDTH * 4,
    "parameter_bytes": sum(p.numel() * 4 for p in model.parameters()), "api": dict(kernels.api),
}, open(sys.argv[1], "w"))
