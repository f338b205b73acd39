"""A speech recognizer whose number of open streams follows day and night: between 32 and 512, a day in 40 s.

Innocent: each stream has a state of 1 MiB that the recognizer releases when the stream ends. The pool keeps the size
that the first day needed.
"""
import math

from program import run

FEWEST, MOST, DAY = 32, 512, 40.0
PERIOD, WIDTH = 0.25, 1024


def main(program):
    torch = program.torch()
    model = torch.nn.Linear(WIDTH, WIDTH).cuda()
    states = torch.zeros(FEWEST, 256, WIDTH, device="cuda")
    with torch.no_grad():
        for turn in program.every(PERIOD):
            daylight = (1 - math.cos(2 * math.pi * turn * PERIOD / DAY)) / 2
            streams = FEWEST + int(daylight * (MOST - FEWEST))
            if streams < len(states):
                states = states[-streams:].clone()  # the oldest streams end
            elif streams > len(states):
                states = torch.cat([states, torch.zeros(streams - len(states), 256, WIDTH, device="cuda")])
            states = torch.tanh(model(states))
            states[:, -1].argmax(dim=1).tolist()


if __name__ == "__main__":
    run(main, "innocent")
