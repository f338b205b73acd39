"""A segmentation service. After 40 s an operator turns on a debug mode that keeps each output.

Leak: nothing during the first 20 minutes, then 32 MiB every 0.25 s, 256 MiB a minute.
"""
from program import run, tensor_bytes

PERIOD, QUIET = 0.25, 40.0
ROWS, WIDTH = 8192, 1024


def main(program):
    torch = program.torch()
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)).cuda()
    kept = []
    with torch.no_grad():
        for turn in program.every(PERIOD):
            output = model(torch.randn(ROWS, WIDTH, device="cuda"))
            output.mean().item()
            if turn * PERIOD >= QUIET:
                kept.append(output)
    return tensor_bytes(kept)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
