"""A service that evaluates itself every 10 s and keeps all predictions for a report that it writes at its end.

Leak: each evaluation keeps 24 tensors of 24 MiB. It grows by 576 MiB every 5 minutes and not in between.
"""
from program import MIB, run, tensor_bytes

PER_EVALUATION = 50


def main(program):
    torch = program.torch()
    model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 2048)).cuda()
    predictions = []
    rows = 24 * MIB // (2048 * 4)
    with torch.no_grad():
        for turn in program.every(0.2):
            model(torch.randn(64, 2048, device="cuda")).sum().item()
            if turn % PER_EVALUATION == PER_EVALUATION - 1:
                predictions += [model(torch.randn(rows, 2048, device="cuda")) for _ in range(24)]
    return tensor_bytes(predictions)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
