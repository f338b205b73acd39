"""A training loop whose model torch.compile turns into fused kernels.

Innocent: the compiler allocates for its trials during the first steps, and the steps after it keep their size.
"""
import shutil

from program import run
from training import Training


def main(program):
    program.load("triton")
    if not (shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")):
        program.missing("torch.compile finds no C compiler")
    torch = program.torch()
    training = Training(torch)
    training.model = torch.compile(training.model)
    for turn in program.every(0.25):
        loss = training.step(training.batch(512))
        if turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
