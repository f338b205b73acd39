#!/usr/bin/env python3
"""Programs that copy all of their data from pageable memory: pageable_copies must advise them."""
from driver import Driver
from program import MIB, run_one

PERIOD, SIZE = 0.04, 24 * MIB


def arrays(program):
    """A training makes its batches with NumPy and moves them with .cuda()."""
    numpy = program.load("numpy")
    torch = program.torch()
    batch = numpy.ones(SIZE, dtype=numpy.uint8)
    for _ in program.every(PERIOD):
        torch.from_numpy(batch).cuda().sum().item()


def loader(program):
    """A training uses a DataLoader without pin_memory=True."""
    torch = program.torch()
    data = torch.utils.data.TensorDataset(torch.ones(256, MIB, dtype=torch.uint8))
    batches = torch.utils.data.DataLoader(data, batch_size=SIZE // MIB)
    turns = program.every(PERIOD)
    while True:
        for (batch,) in batches:
            if next(turns, None) is None:
                return
            batch.to("cuda").sum().item()


def images(program):
    """An image service gives NumPy arrays to CuPy."""
    numpy = program.load("numpy")
    cupy = program.load("cupy")
    image = numpy.ones(SIZE // 4, dtype=numpy.float32)
    for _ in program.every(PERIOD):
        float(cupy.asarray(image).sum())


def put(program):
    """A training with JAX puts NumPy arrays onto the GPU."""
    numpy = program.load("numpy")
    jax = program.load("jax")
    batch = numpy.ones(SIZE // 4, dtype=numpy.float32)
    for _ in program.every(PERIOD):
        jax.device_put(batch).block_until_ready()


def frames(program):
    """A video filter in C style reads frames into memory of malloc and copies them in both directions."""
    driver = Driver(program)
    frame, device = bytes(SIZE), driver.alloc(SIZE)
    for _ in program.every(PERIOD):
        driver.upload(device, frame)
        driver.increment(device, 1024)
        driver.download(device, 8 * MIB)


if __name__ == "__main__":
    run_one([arrays, loader, images, put, frames], ["pageable_copies"])
