"""Training with dynamic batches that grow from 64 to 2,560 rows during the first 30 s and then remain.

Innocent: activations grow with the batch, and the pool with them, until the batch has its full size.
"""
from program import run
from training import Training

PERIOD, WARM_UP = 0.25, 30.0
FIRST, LARGEST = 64, 2560


def main(program):
    training = Training(program.torch())
    for turn in program.every(PERIOD):
        grown = min(1.0, turn * PERIOD / WARM_UP)
        training.step(training.batch(int(FIRST + grown * (LARGEST - FIRST))))


if __name__ == "__main__":
    run(main, "innocent")
