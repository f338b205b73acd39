"""Fine-tuning with low-rank adapters (LoRA): the model is frozen, and only two small matrices a layer learn.

Innocent: the frozen layers, the adapters and the optimizer's state keep their sizes after the first step.
"""
from program import run

WIDTH, LAYERS, RANK = 4096, 12, 16


def adapted(torch):
    """Returns a frozen model of 384 MiB with an adapter beside each layer."""
    class Adapted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base = torch.nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
            self.down = torch.nn.Linear(WIDTH, RANK, bias=False)
            self.up = torch.nn.Linear(RANK, WIDTH, bias=False)

        def forward(self, batch):
            return batch + 0.1 * torch.tanh(self.base(batch) + self.up(self.down(batch)))

    with torch.device("cuda"):
        layers = [Adapted().to(torch.bfloat16) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


def main(program):
    torch = program.torch()
    model = adapted(torch)
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-4, fused=True)
    for turn in program.every(0.5):
        batch = torch.randn(1024, WIDTH, dtype=torch.bfloat16, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        if turn % 10 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
