"""Training that adds the gradients of 8 small batches before it updates the model.

Innocent: the gradients appear with the first small batch of a step and are released after the eighth.
"""
from program import run
from training import Training

BATCHES = 8


def main(program):
    training = Training(program.torch(), width=3072)
    for turn in program.every(0.2):
        loss = training.loss(training.batch(256)) / BATCHES
        loss.backward()
        if turn % BATCHES == BATCHES - 1:
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=True)
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
