"""A training loop that stops every 10 s to validate with batches 16 times as large.

Innocent: each validation needs more memory than a step, and PyTorch's pool keeps that memory for the next one.
"""
from program import run
from training import Training

STEPS, VALIDATION_BATCHES = 36, 4


def main(program):
    torch = program.torch()
    training = Training(torch)
    for turn in program.every(0.25):
        phase = turn % (STEPS + VALIDATION_BATCHES)
        if phase < STEPS:
            training.model.train()
            training.step(training.batch(512))
            continue
        training.model.eval()
        with torch.no_grad():
            training.loss(training.batch(8192)).item()


if __name__ == "__main__":
    run(main, "innocent")
