"""An inference service that appends each output to a list, which its author once printed.

Leak: nothing reads or empties the list. It keeps 64 KiB every 0.125 s, 1 MiB a minute.
"""
from program import run, tensor_bytes


def main(program):
    torch = program.torch()
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
    outputs = []
    with torch.no_grad():
        for _ in program.every(0.125):
            output = model(torch.randn(16, 1024, device="cuda"))
            outputs.append(output)
    return tensor_bytes(outputs)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
