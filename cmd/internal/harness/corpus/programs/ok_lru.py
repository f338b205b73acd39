"""An embedding service with a cache that evicts the least recently used text.

Innocent: the cache reaches its limit of 512 MiB within 10 s and stays there, although its contents change.
"""
import collections

from program import run

LIMIT, TEXTS, WORDS = 64, 600, 2048


def main(program):
    torch = program.torch()
    embed = torch.nn.Embedding(32768, 1024).cuda()
    layer = torch.nn.Linear(1024, 1024).cuda()
    cache = collections.OrderedDict()
    with torch.no_grad():
        for _ in program.every(0.1):
            text = program.random.randrange(TEXTS)
            if text not in cache:
                words = torch.randint(0, 32768, (WORDS,), device="cuda")
                cache[text] = torch.tanh(layer(embed(words)))
                if len(cache) > LIMIT:
                    cache.popitem(last=False)
            cache.move_to_end(text)
            cache[text].mean().item()


if __name__ == "__main__":
    run(main, "innocent")
