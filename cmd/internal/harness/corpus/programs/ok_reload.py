"""A model server that loads a new version of its model every 20 s.

Innocent: for a moment both versions are on the GPU; then the server drops the old one and empties the pool.
"""
from program import run

RELOAD_PERIOD, REQUEST_PERIOD = 20.0, 0.2
LAYERS, WIDTH = 12, 3072


def load(torch):
    """Returns a model of 432 MiB, layer by layer, as from a file."""
    return torch.nn.Sequential(*[
        torch.nn.utils.skip_init(torch.nn.Linear, WIDTH, WIDTH).requires_grad_(False).cuda() for _ in range(LAYERS)])


def main(program):
    torch = program.torch()
    model = load(torch)
    reload_turn = int(RELOAD_PERIOD / REQUEST_PERIOD)
    for turn in program.every(REQUEST_PERIOD):
        if turn % reload_turn == reload_turn - 1:
            model = load(torch)
            torch.cuda.empty_cache()
        rows = program.random.randint(1, 32)
        model(torch.randn(rows, WIDTH, device="cuda")).argmax(dim=1).cpu()


if __name__ == "__main__":
    run(main, "innocent")
