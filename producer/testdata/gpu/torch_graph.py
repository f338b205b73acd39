"""Runs PyTorch steps by replaying a CUDA graph (MODE=graph) or with torch.compile (MODE=compile)."""
import json
import os
import sys
import torch
from cupti import Kernels

MODE, REPLAYS = os.environ.get("MODE", "graph"), 50
free_before, _ = torch.cuda.mem_get_info()
with Kernels() as kernels:
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda()
    x = torch.randn(64, 256, device="cuda")
    if MODE == "compile":
        step = torch.compile(model)
        for _ in range(REPLAYS):
            y = step(x)
    else:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            y = model(x)
        for _ in range(REPLAYS):
            graph.replay()
    torch.cuda.synchronize()
free_after, _ = torch.cuda.mem_get_info()
json.dump({"kernels": sum(kernels.names.values()), "names": len(kernels.names), "by_name": dict(kernels.names),
           "replays": REPLAYS, "api": dict(kernels.api), "mem_get_info": free_before - free_after}, open(sys.argv[1], "w"))
