"""Counts kernels with CUPTI, through PyTorch's profiler: it sees those of CuPy and JAX too."""
import collections
import torch
from torch.profiler import ProfilerActivity, profile


class Kernels:
    @classmethod
    def none(cls):
        """What a run without CUPTI has counted: nothing."""
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
