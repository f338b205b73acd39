"""An image generator: each request denoises 4 images in 12 steps, at a width and a height that the request chooses.

Innocent: each resolution needs other sizes, and PyTorch's pool grows until it serves the largest ones.
"""
from program import run

SIDES = [64, 80, 96, 112, 128, 160, 192]
IMAGES, STEPS = 4, 12


def main(program):
    torch = program.torch()
    nn = torch.nn
    network = nn.Sequential(
        nn.Conv2d(4, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.SiLU(),
        nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1), nn.SiLU(), nn.Conv2d(64, 4, 3, padding=1),
    ).cuda()
    decoder = nn.ConvTranspose2d(4, 3, 8, stride=8).cuda()
    latent = None
    with torch.no_grad():
        for turn in program.every(0.15):
            if turn % STEPS == 0:
                height, width = program.random.choice(SIDES), program.random.choice(SIDES)
                latent = torch.randn(IMAGES, 4, height, width, device="cuda")
            latent = latent - 0.1 * network(latent)
            if turn % STEPS == STEPS - 1:
                decoder(latent).clamp(-1, 1).cpu()


if __name__ == "__main__":
    run(main, "innocent")
