"""A training run that averages its weights and keeps a copy of the average of every epoch, to choose the best one.

Leak: the copies that were not the best stay in the list. An epoch takes 3 s, a copy 64 MiB: 43 MiB a minute, in steps.
"""
import copy

from program import run, tensor_bytes
from training import Training

EPOCH = 12


def main(program):
    torch = program.torch()
    training = Training(torch)
    average = copy.deepcopy(training.model).requires_grad_(False)
    held_out = training.batch(256)
    copies = []
    for turn in program.every(0.25):
        training.step(training.batch(256))
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), training.model.parameters()):
                mean.lerp_(weight, 0.01)
            if turn % EPOCH == EPOCH - 1:
                loss = (average(held_out) - held_out).square().mean().item()
                copies.append((loss, copy.deepcopy(average)))
                min(copies, key=lambda pair: pair[0])
    return max(0, len(copies) - 1) * tensor_bytes(average.parameters())


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
