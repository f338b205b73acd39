"""A service that keeps its answers until a cleanup, every 4.8 s, removes those that no client holds.

Leak: 20 % of the clients vanish without giving their answer back, so the cleanup skips it for ever. With an answer of
16 MiB every 0.4 s this makes 16 MiB a minute, below a sawtooth of 190 MiB.
"""
from program import run, tensor_bytes

SIDE = 2048
CLEANUP = 12


def main(program):
    torch = program.torch()
    model = torch.nn.Linear(SIDE, SIDE).cuda()
    answers, held = {}, set()
    with torch.no_grad():
        for turn in program.every(0.4):
            answers[turn] = model(torch.randn(SIDE, SIDE, device="cuda"))
            if program.random.random() < 0.2:
                held.add(turn)
            if turn % CLEANUP == CLEANUP - 1:
                for number in [number for number in answers if number not in held]:
                    del answers[number]
                torch.cuda.empty_cache()
    return tensor_bytes([answers[number] for number in held])


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
