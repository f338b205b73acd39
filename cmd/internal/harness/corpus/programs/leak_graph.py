"""An evaluation loop that sums its losses without torch.no_grad, with a hook that looks at activations.

Leak: the sum refers to the graph of each batch, and the graph to its activations. About 6 MiB every 0.5 s, 24 MiB
a minute.
"""
from program import run


def main(program):
    torch = program.torch()
    blocks = [(torch.nn.Linear(2048, 2048), torch.nn.ReLU()) for _ in range(4)]
    model = torch.nn.Sequential(*[module for block in blocks for module in block]).cuda()
    activations = {}
    for number, module in enumerate(model):
        module.register_forward_hook(lambda module, inputs, output, number=number: activations.update({number: output}))
    total, first = 0.0, None
    for _ in program.every(0.5):
        batch = torch.randn(128, 2048, device="cuda")
        total = total + (model(batch) - batch).square().mean()
        first = first or torch.cuda.memory_allocated()
    return torch.cuda.memory_allocated() - first


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
