"""An embedding service with a dict as cache. One text in five was seen before.

Leak: the cache has no limit and evicts nothing. It keeps 512 KiB for each new text, about 7 MiB a minute.
"""
from program import run, tensor_bytes


def main(program):
    torch = program.torch()
    embed = torch.nn.Embedding(32768, 1024).cuda()
    layer = torch.nn.Linear(1024, 1024).cuda()
    cache = {}
    with torch.no_grad():
        for turn in program.every(0.125):
            text = turn if program.random.random() < 0.8 else program.random.randint(0, turn)
            if text not in cache:
                words = torch.randint(0, 32768, (128,), device="cuda")
                cache[text] = torch.tanh(layer(embed(words)))
            cache[text].mean().item()
    return tensor_bytes(cache.values())


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
