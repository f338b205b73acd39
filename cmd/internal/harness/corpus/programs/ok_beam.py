"""A translator with beam search: 8 candidates, each with its KV cache, in 8 layers.

Innocent: each word copies the caches of the best candidates into longer ones. After 32 words the program releases
them, and the next text begins.
"""
from program import run

BEAMS, LAYERS, WIDTH, VOCABULARY = 8, 8, 2048, 8192
WORDS, WORD_PERIOD = 32, 0.25


def translate(program, torch, embedding, head):
    """Returns the score of the best translation of one text."""
    length = program.random.randint(32, 256)
    caches = [torch.zeros(BEAMS, length, WIDTH, dtype=torch.float16, device="cuda") for _ in range(LAYERS)]
    scores = torch.zeros(BEAMS, device="cuda")
    words = torch.zeros(BEAMS, dtype=torch.int64, device="cuda")
    for _ in range(WORDS):
        hidden = embedding(words) + caches[-1].mean(dim=1)
        likely = torch.log_softmax(head(hidden).float(), dim=1)
        scores, best = (scores[:, None] + likely).flatten().topk(BEAMS)
        beams, words = best // VOCABULARY, best % VOCABULARY
        newest = hidden[beams][:, None, :]
        caches = [torch.cat([cache[beams], newest], dim=1) for cache in caches]
        program.pause(WORD_PERIOD)
        if program.left() <= 0:
            break
    return scores.max().item()


def main(program):
    torch = program.torch()
    embedding = torch.nn.Embedding(VOCABULARY, WIDTH).half().cuda()
    head = torch.nn.Linear(WIDTH, VOCABULARY).half().cuda()
    with torch.no_grad():
        for _ in program.every(1):
            translate(program, torch, embedding, head)


if __name__ == "__main__":
    run(main, "innocent")
