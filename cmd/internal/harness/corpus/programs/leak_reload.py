"""A model server that loads a new version of its model every 10 s.

Leak: the metrics of each version keep a reference to its model, so all versions remain. 432 MiB every 5 minutes, 86 MiB
a minute.
"""
from ok_reload import LAYERS, WIDTH, load
from program import run

RELOAD_PERIOD, REQUEST_PERIOD = 10.0, 0.2
MODEL = LAYERS * WIDTH * (WIDTH + 1) * 4


def main(program):
    torch = program.torch()
    model = load(torch)
    metrics = [lambda model=model: len(model)]
    reload_turn = int(RELOAD_PERIOD / REQUEST_PERIOD)
    for turn in program.every(REQUEST_PERIOD):
        if turn % reload_turn == reload_turn - 1:
            model = load(torch)
            metrics.append(lambda model=model: len(model))
            torch.cuda.empty_cache()
        rows = program.random.randint(1, 32)
        model(torch.randn(rows, WIDTH, device="cuda")).argmax(dim=1).cpu()
    return (len(metrics) - 1) * MODEL


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
