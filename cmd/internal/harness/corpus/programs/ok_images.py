"""An image generator that denoises and decodes one or two images of 256 to 1024 pixels a side.

Innocent: sizes differ from request to request. PyTorch's cache grows until it holds the largest of them.
"""
from program import run

CHANNELS = 192
STEPS = 4


def main(program):
    torch = program.torch()
    nn = torch.nn
    denoiser = nn.Sequential(
        nn.Conv2d(4, CHANNELS, 3, padding=1), nn.GroupNorm(32, CHANNELS), nn.SiLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.SiLU(), nn.Conv2d(CHANNELS, 4, 3, padding=1)).cuda().half()
    stages = []
    for inputs, outputs in [(CHANNELS, 128), (128, 64), (64, 32)]:
        stages += [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(inputs, outputs, 3, padding=1),
                   nn.GroupNorm(16, outputs), nn.SiLU()]
    decoder = nn.Sequential(
        nn.Conv2d(4, CHANNELS, 3, padding=1), *stages, nn.Conv2d(32, 3, 3, padding=1)).cuda().half()
    with torch.inference_mode():
        for _ in program.every(0.5):
            images = program.random.randint(1, 2)
            height, width = (64 * program.random.randint(4, 16) for _ in range(2))
            latent = torch.randn(images, 4, height // 8, width // 8, device="cuda", dtype=torch.half)
            for _ in range(STEPS):
                latent = latent - 0.1 * denoiser(latent)
            decoder(latent).mul(127).clamp(0, 255).to(torch.uint8).cpu()


if __name__ == "__main__":
    run(main, "innocent")
