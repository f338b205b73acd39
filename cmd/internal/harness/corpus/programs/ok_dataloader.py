"""Training of a small convolutional network with a DataLoader: two worker processes, pinned memory, prefetch.

Innocent: the number of prefetched batches is bounded, in pinned memory and on the GPU.
"""
from program import run

BATCH, SIZE, CLASSES = 64, 64, 10


class Images:
    """A data set of random images."""

    def __init__(self, numpy, count=4096):
        self.numpy = numpy
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        generator = self.numpy.random.default_rng(index)
        return generator.random((3, SIZE, SIZE), dtype=self.numpy.float32), index % CLASSES


def batches(torch, images):
    """Yields batches in pinned memory, one epoch after the other."""
    loader = torch.utils.data.DataLoader(
        images, batch_size=BATCH, shuffle=True, num_workers=2, pin_memory=True, prefetch_factor=2,
        persistent_workers=True)
    while True:
        yield from loader


def main(program):
    numpy = program.load("numpy")
    torch = program.torch()
    convolution = torch.nn.Conv2d
    model = torch.nn.Sequential(
        convolution(3, 64, 3, stride=2), torch.nn.ReLU(), convolution(64, 128, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(128 * 16, CLASSES),
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _, (pictures, labels) in zip(program.every(0.25), batches(torch, Images(numpy))):
        pictures = pictures.to("cuda", non_blocking=True)
        labels = labels.to("cuda", non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    run(main, "innocent")
