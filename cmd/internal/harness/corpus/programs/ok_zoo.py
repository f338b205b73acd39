"""A server with six models of 24 to 384 MiB that has room for two. It loads them in turn, each for 6 s.

Innocent: it unloads the oldest model, and empties PyTorch's cache, before it loads the next.
"""
import collections

from program import run

WIDTHS = [1024, 3072, 2048, 4096, 1536, 2560]
LAYERS = 6
SLOTS = 2
STAY = 10


def main(program):
    torch = program.torch()
    models = collections.OrderedDict()

    def load(width):
        while len(models) >= SLOTS:
            models.popitem(last=False)
        torch.cuda.empty_cache()
        layers = [torch.nn.Linear(width, width, device="cuda") for _ in range(LAYERS)]
        models[width] = torch.nn.Sequential(*layers).eval()

    def answer():
        width = program.random.choice(list(models))
        rows = program.random.randint(1, 64)
        models[width](torch.randn(rows, width, device="cuda")).sum().item()

    with torch.no_grad():
        for turn in program.every(0.3):
            if turn % STAY == 0:
                load(WIDTHS[turn // STAY % len(WIDTHS)])
            answer()


if __name__ == "__main__":
    run(main, "innocent")
