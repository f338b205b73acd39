"""An LLM server with a cache of prompt prefixes whose key contains the time of the request.

Leak: no prefix is ever found again or evicted. It keeps the keys and values of 64 to 448 tokens, 16 KiB each, every
0.4 s: 20 MiB a minute.
"""
import hashlib

from program import run, tensor_bytes

LAYERS = 8
HEADS = 8
SIZE = 64
WIDTH = HEADS * SIZE
WORDS = 32000


def main(program):
    torch = program.torch()
    attention = torch.nn.functional.scaled_dot_product_attention
    embedding = torch.nn.Embedding(WORDS, WIDTH).cuda().half()
    projections = [torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False).cuda().half() for _ in range(LAYERS)]
    prefixes = {}

    def prefill(tokens):
        hidden, pairs = embedding(tokens), []
        for projection in projections:
            parts = projection(hidden).chunk(3, dim=-1)
            query, key, value = [
                part.reshape(1, -1, HEADS, SIZE).transpose(1, 2).contiguous() for part in parts]
            pairs.append((key, value))
            mixed = attention(query, key, value, is_causal=True)
            hidden = hidden + mixed.transpose(1, 2).reshape(1, -1, WIDTH)
        return hidden[:, -1].clone(), pairs

    with torch.no_grad():
        for turn in program.every(0.4):
            words = [program.random.randrange(WORDS) for _ in range(program.random.randint(64, 448))]
            digest = hashlib.sha256(f"It is {turn} o'clock. {words}".encode()).digest()
            if digest not in prefixes:
                prefixes[digest] = prefill(torch.tensor([words], device="cuda"))
            last, _ = prefixes[digest]
            (last @ embedding.weight.T).argmax().item()
    return sum(tensor_bytes(pair) for _, pairs in prefixes.values() for pair in pairs)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
