"""A text classifier, a transformer in half precision, for batches of 1 to 16 texts of very different lengths.

Innocent: PyTorch's allocator keeps what it has freed. It grows with each longer batch, more and more rarely.
"""
import math

from program import run

WIDTH = 768


def main(program):
    torch = program.torch()
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().half().eval()
    head = torch.nn.Linear(WIDTH, 20).cuda().half()
    with torch.inference_mode():
        for _ in program.every(0.2):
            texts = program.random.randint(1, 16)
            length = min(1024, max(8, int(math.exp(program.random.gauss(4.8, 0.8)))))
            tokens = torch.randn(texts, length, WIDTH, device="cuda", dtype=torch.half)
            head(encoder(tokens).mean(dim=1)).argmax(dim=1).tolist()


if __name__ == "__main__":
    run(main, "innocent")
