"""An LLM server with speculative decoding: a draft model proposes four tokens, and the large one checks them.

Innocent: the keys and values of both models grow during a conversation, 3 to 12 s, and are dropped at its end.
"""
from program import run

SIZE = 64
TEXTS = 8
PROPOSED = 4


class Decoder:
    """Layers of attention with a cache of keys and values."""

    def __init__(self, torch, layers, heads):
        self.torch = torch
        self.heads, self.width = heads, heads * SIZE
        linear = torch.nn.Linear
        self.layers = [
            (linear(self.width, 3 * self.width, bias=False).cuda().half(),
             linear(self.width, self.width, bias=False).cuda().half()) for _ in range(layers)]
        self.reset()

    def reset(self):
        """Drops the cache."""
        self.cache = [None] * len(self.layers)

    def truncate(self, length):
        """Forgets the tokens from length on."""
        self.cache = [(key[:, :, :length], value[:, :, :length]) for key, value in self.cache]

    def read(self, tokens):
        """Reads a number of tokens, adds them to the cache, and returns what it made of them."""
        attention = self.torch.nn.functional.scaled_dot_product_attention
        hidden = self.torch.randn(TEXTS, tokens, self.width, device="cuda", dtype=self.torch.half)
        for number, (project, join) in enumerate(self.layers):
            parts = project(hidden).chunk(3, dim=-1)
            query, key, value = [part.reshape(TEXTS, tokens, self.heads, SIZE).transpose(1, 2) for part in parts]
            if self.cache[number] is not None:
                key = self.torch.cat([self.cache[number][0], key], dim=2)
                value = self.torch.cat([self.cache[number][1], value], dim=2)
            self.cache[number] = (key, value)
            mixed = attention(query, key, value)
            hidden = hidden + join(mixed.transpose(1, 2).reshape(TEXTS, tokens, self.width))
        return hidden


def main(program):
    torch = program.torch()
    draft, large = Decoder(torch, 2, 8), Decoder(torch, 8, 16)
    length, turns = 0, 0
    with torch.inference_mode():
        for _ in program.every(0.1):
            if turns == 0:
                draft.reset()
                large.reset()
                turns, length = program.random.randint(30, 120), program.random.randint(64, 512)
                draft.read(length)
                large.read(length)
            for _ in range(PROPOSED):
                draft.read(1)
            large.read(PROPOSED + 1).sum().item()
            length += program.random.randint(1, PROPOSED)
            draft.truncate(length)
            large.truncate(length)
            turns -= 1


if __name__ == "__main__":
    run(main, "innocent")
