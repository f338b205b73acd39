#!/usr/bin/env python3
"""Three PyTorch programs whose memory has different reasons; docs/measurements/torch.md has what gputap says of each."""
from program import MIB, run_one

GIB = 1 << 30


def keeps(program):
    """An evaluation appends each output of 4 MiB to a list: the set of tensors grows."""
    torch = program.torch()
    outputs = []
    for _ in program.every(0.1):
        outputs.append(torch.randn(MIB, device="cuda"))
    return len(outputs) * 4 * MIB


def plateau(program):
    """A model for texts of any length: PyTorch's cache grows until the longest have been seen. It keeps no tensor."""
    torch = program.torch()
    weights = torch.randn(2048, 2048, device="cuda")
    for turn in program.every(0.1):
        longest = min(64 + 4 * turn, 1024)
        tokens = program.random.randint(16, longest) * 64
        (torch.randn(tokens, 2048, device="cuda") @ weights).relu_().sum().item()


def fragments(program):
    """A server reuses segments of 1 GiB for tensors of 600 MiB. The rests serve no larger request."""
    torch = program.torch()
    free, _ = torch.cuda.mem_get_info()
    segments = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(int(free / GIB) - 8)]
    del segments
    tensors = []
    while torch.cuda.memory_allocated() < 0.58 * torch.cuda.memory_reserved():
        tensors.append(torch.empty(600 * MIB, dtype=torch.uint8, device="cuda"))
    program.pause(5)
    try:
        torch.empty(20 * GIB, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        print(error, flush=True)


if __name__ == "__main__":
    run_one([keeps, plateau, fragments], ["suspect", "steady", "oom"])
