"""A notebook: its user runs five cells, leaves for lunch, and runs two more.

Innocent: the variables of the cells remain, and nothing happens between them.
"""
from program import run


def main(program):
    torch = program.torch()
    model = torch.nn.Sequential(*[torch.nn.Linear(3072, 3072) for _ in range(8)]).cuda().requires_grad_(False)
    program.pause(3)
    samples = torch.randn(32768, 3072, device="cuda")
    program.pause(2)
    outputs = model(samples)
    program.pause(4)
    figures = [outputs.mean().item(), outputs.std().item()]
    program.pause(3)
    distances = torch.cdist(outputs[:4096], outputs[4096:8192])
    figures.append(distances.min().item())
    program.pause(50)
    outputs = model(samples * 0.5)
    figures.append(outputs.mean().item())
    program.pause(5)
    distances = torch.cdist(outputs[:4096], outputs[4096:8192])
    figures.append(distances.min().item())
    program.pause(program.seconds)


if __name__ == "__main__":
    run(main, "innocent")
