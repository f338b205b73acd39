"""Reinforcement learning with a replay memory of 120 entries of 4 MiB on the GPU.

Innocent: the memory fills during the first 30 % of the time, 40 MiB a minute. Then each new entry replaces the oldest.
"""
import collections

from program import run
from training import Training

CAPACITY = 120
ROWS = 1024


def main(program):
    torch = program.torch()
    training = Training(torch, width=1024)
    memory = collections.deque(maxlen=CAPACITY)
    for turn in program.every(0.2):
        with torch.no_grad():
            memory.append(training.model(training.batch(ROWS)).sign())
        batch = torch.cat([program.random.choice(memory)[:128] for _ in range(4)])
        loss = training.step(batch)
        if turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
