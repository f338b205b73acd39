"""A speech recognizer that copies an ever longer recording into a new buffer, beside short results.

Leak: PyTorch's pool is never trimmed. A freed buffer is too short for the next one, and results split it. The program
needs at most 210 MiB; the pool grows by 40 to 200 MiB a minute, to about 4.5 GiB.
"""
import collections
import os

from program import MIB, run


def main(program):
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        os.environ.pop(variable, None)  # expandable segments avoid this leak
    torch = program.torch()
    results = collections.deque(maxlen=4)
    recording = torch.zeros(16 * MIB, dtype=torch.uint8, device="cuda")
    for _ in program.every(1):
        longer = torch.zeros(len(recording) + MIB, dtype=torch.uint8, device="cuda")
        longer[:len(recording)] = recording
        recording = longer
        results.append(recording[-3 * MIB:].bitwise_xor(1))
    return torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
