"""A web server that registers a callback with each request, and the callback refers to the request's features.

Leak: the callbacks are never called or removed. It keeps 0.25 to 1.25 MiB a request, about 15 MiB a minute.
"""
from program import run, tensor_bytes


def main(program):
    torch = program.torch()
    encoder = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()).cuda()
    head = torch.nn.Linear(1024, 16).cuda()
    callbacks, kept = [], 0
    with torch.no_grad():
        for _ in program.every(0.1):
            rows = program.random.randint(64, 320)
            features = encoder(torch.randn(rows, 1024, device="cuda"))
            head(features).argmax(dim=1).cpu()
            callbacks.append(lambda features=features: features.norm().item())
            kept += tensor_bytes([features])
    return kept


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
