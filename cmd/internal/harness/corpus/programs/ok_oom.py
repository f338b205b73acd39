"""Training with a batch size for a larger GPU. After an out-of-memory error it takes a smaller batch.

Innocent: the driver refuses the allocation of 512 GiB, the program catches the error, and the next batch fits. The
program tries the large batch again every 20 s, as after each epoch.
"""
from program import run
from training import Training

LARGE, SMALL = 1 << 26, 512
STEPS = 80


def step(torch, training, large):
    """Trains with the large batch if it is asked to and the batch fits, else with a small one."""
    if large:
        try:
            return training.step(training.batch(LARGE))
        except torch.cuda.OutOfMemoryError:
            pass
    return training.step(training.batch(SMALL))


def main(program):
    torch = program.torch()
    training = Training(torch)
    for turn in program.every(0.25):
        loss = step(torch, training, turn % STEPS == 4)
        if turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
