"""Counts kernels with CUPTI, through PyTorch's profiler. The profiler also sees kernels of CuPy and JAX."""
import collections
import torch
from torch.profiler import ProfilerActivity, profile


class Kernels:
    @classmethod
    def none(cls):
        """Returns empty counts, for a run without CUPTI."""
        self = cls()
        self.names, self.api = collections.Counter(), collections.Counter()
        return self

    def __enter__(self):
        torch.cuda.init()
        self.profile = profile(activities=[ProfilerActivity.CUDA])
        self.profile.__enter__()
        return self

    def __exit__(self, *error):
        torch.cuda.synchronize()
        self.profile.__exit__(*error)
        self.names = collections.Counter()
        self.api = collections.Counter()
        for event in self.profile.profiler.kineto_results.events():
            name = event.name()
            if str(event.device_type()).endswith("CUDA"):
                if not name.startswith(("Memcpy", "Memset")) and "Sync" not in name:
                    self.names[name] += 1
            elif name.startswith("cu"):
                self.api[name] += 1


BLOCKS = [1 << 30, 512 << 20, 300 << 20] + [20 << 20] * 12 + [2 << 20] * 64


def filled(allocate):
    """Allocates BLOCKS and returns by how much cuMemGetInfo's free memory fell. gputap sees both calls of cuMemGetInfo."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # else the allocator reuses cached memory, and the GPU's memory use does not grow
    before, _ = torch.cuda.mem_get_info()
    kept = [allocate(n) for n in BLOCKS]
    torch.cuda.synchronize()
    after, _ = torch.cuda.mem_get_info()
    del kept
    return before - after
