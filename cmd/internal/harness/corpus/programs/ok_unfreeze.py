"""A fine-tuning that trains the last 2 of 14 layers, and 4 more of them after 12, 25 and 38 % of the time.

Innocent: gradients, moments and activations grow in three steps, and then stay.
"""
from program import run

LAYERS = 14
FIRST = 2
MORE = 4
WIDTH = 2048
STEPS = [0.12, 0.25, 0.38]


def main(program):
    torch = program.torch()
    layers = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()).requires_grad_(False)
        for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers).cuda()

    def unfreeze(first, last):
        return [weight.requires_grad_(True) for layer in layers[first:last] for weight in layer.parameters()]

    frozen, steps = LAYERS - FIRST, list(STEPS)
    optimizer = torch.optim.AdamW(unfreeze(frozen, LAYERS), lr=1e-4)
    for turn in program.every(0.25):
        progress = 1 - max(0.0, program.left()) / max(program.seconds, 0.001)
        while steps and progress >= steps[0]:
            steps.pop(0)
            optimizer.add_param_group({"params": unfreeze(frozen - MORE, frozen)})
            frozen -= MORE
        batch = torch.randn(1024, WIDTH, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        if turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
