"""An analysis of a model's hidden states with PyTorch's expandable segments, which grow by mapped pages.

Leak: the program keeps the states of all texts although it needs their averages alone. 2 to 13 MiB every 0.25 s,
about 60 MiB a minute.
"""
import os

from program import run, tensor_bytes


def main(program):
    os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)  # the older name
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    torch = program.torch()
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()).cuda()
    states, averages = [], []
    with torch.no_grad():
        for _ in program.every(0.25):
            words = program.random.randint(512, 3328)
            states.append(model(torch.randn(words, 1024, device="cuda")))
            averages.append(states[-1].mean().item())
    return tensor_bytes(states)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
