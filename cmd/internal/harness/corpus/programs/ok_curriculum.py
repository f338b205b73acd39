"""A language model that trains on texts of 128 tokens, and of 256, 512 and 1024 after 15, 30 and 45 % of the time.

Innocent: memory grows in four steps, with the length, and then stays.
"""
from program import run

WIDTH = 512
HEADS = 8
WORDS = 4000
TEXTS = 8
LENGTHS = [(0.45, 1024), (0.3, 512), (0.15, 256), (0.0, 128)]


def block_type(torch):
    """Returns the class of a transformer block."""
    attention = torch.nn.functional.scaled_dot_product_attention

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
            self.project, self.join = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
            self.feed = torch.nn.Sequential(
                torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, hidden):
            texts, length, _ = hidden.shape
            parts = self.project(self.first(hidden)).chunk(3, dim=-1)
            query, key, value = [part.reshape(texts, length, HEADS, -1).transpose(1, 2) for part in parts]
            mixed = attention(query, key, value, is_causal=True)
            hidden = hidden + self.join(mixed.transpose(1, 2).reshape(texts, length, WIDTH))
            return hidden + self.feed(self.second(hidden))

    return Block


def main(program):
    torch = program.torch()
    block = block_type(torch)
    model = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, WIDTH), *[block() for _ in range(4)], torch.nn.Linear(WIDTH, WORDS)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for turn in program.every(0.3):
        progress = max(0.0, 1 - max(0.0, program.left()) / max(program.seconds, 0.001))
        length = next(length for since, length in LENGTHS if progress >= since)
        words = torch.randint(0, WORDS, (TEXTS, length + 1), device="cuda")
        optimizer.zero_grad(set_to_none=True)
        scores = model(words[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.reshape(-1, WORDS), words[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        value = loss.detach()
        del scores, loss
        if turn % 20 == 0:
            value.item()


if __name__ == "__main__":
    run(main, "innocent")
