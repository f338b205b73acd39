"""A plain training loop with AdamW.

Innocent: parameters, gradients, optimizer state and activations keep their sizes after the first steps.
"""
from program import run
from training import Training


def main(program):
    training = Training(program.torch())
    for turn in program.every(0.25):
        loss = training.step(training.batch(512))
        if turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
