"""A service that fails for 2 s of every 16 s, because a service behind it does, and keeps its exceptions for a report.

Leak: an exception refers to its traceback, the traceback to the frame, and the frame to the tensors of the request.
Each failed request keeps 64 MiB: 1 GiB in the minute of a failure, every 8 minutes.
"""
from program import run

PERIOD, CYCLE, FAILING = 0.125, 128, 16
ROWS, WIDTH = 16384, 1024


class Unavailable(Exception):
    """The service behind this one does not answer."""


def store(result, available):
    """Gives a result to the service behind this one."""
    if not available:
        raise Unavailable(f"store {len(result)} results")


def handle(torch, model, available):
    """Answers one request."""
    features = torch.randn(ROWS, WIDTH, device="cuda")
    scores = model(features).argmax(dim=1).tolist()
    store(scores, available)
    return features.shape


def main(program):
    torch = program.torch()
    model = torch.nn.Linear(WIDTH, 16).cuda()
    errors = []
    with torch.no_grad():
        for turn in program.every(PERIOD):
            try:
                handle(torch, model, turn % CYCLE < CYCLE - FAILING)
            except Unavailable as error:
                errors.append(error)
    return len(errors) * ROWS * WIDTH * 4


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
