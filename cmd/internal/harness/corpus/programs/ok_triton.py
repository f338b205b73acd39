"""Inference with a Triton kernel that is tuned for each new length of its input.

Innocent: each tuning takes 256 MiB to empty the GPU's cache between measurements, and returns them to PyTorch's pool.
"""
import shutil

from program import MIB, run

LENGTHS = [16 * MIB, 4 * MIB, 24 * MIB, 8 * MIB, 32 * MIB, 12 * MIB]
TURNS = 40


def main(program):
    program.load("triton")
    if not (shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")):
        program.missing("Triton finds no C compiler")
    torch = program.torch()
    autotuned = program.load("autotuned")
    for turn in program.every(0.25):
        seen = min(turn // TURNS + 1, len(LENGTHS))  # a new length every 10 s, until 50 s
        length = LENGTHS[seen - 1] if turn % TURNS == 0 else program.random.choice(LENGTHS[:seen])
        data = torch.randn(length, device="cuda")
        result = torch.empty_like(data)
        autotuned.apply(data, result)
        result.sum().item()


if __name__ == "__main__":
    run(main, "innocent")
