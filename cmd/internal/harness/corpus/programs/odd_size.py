#!/usr/bin/env python3
"""Programs whose memory is ordinary but for one allocation: alloc_size must name it."""
import threading

from driver import Driver
from program import MIB, run_one


def seed(program):
    """Four threads allocate 10 MiB in turns and keep three each. In turn 5, one of them allocates 2,096 MiB."""
    torch = program.torch()
    barrier = threading.Barrier(4)

    def worker(number):
        kept = []
        for turn in range(30):
            barrier.wait()
            size = 2096 if number == 0 and turn == 5 else 10
            kept = [*kept[-2:], torch.empty(size * MIB, dtype=torch.uint8, device="cuda")]
            program.pause(0.05)
        program.pause(program.left())

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pairs(program):
    """A search service compares 256 vectors with each other in a request; one request has 30,000."""
    torch = program.torch()
    for turn in program.every(0.1):
        vectors = torch.randn(30_000 if turn == 400 else 256, 128, device="cuda")
        torch.cdist(vectors, vectors).min().item()


def dense(program):
    """A graph network multiplies a sparse matrix; a debugging aid makes it dense once, 32,768 rows."""
    torch = program.torch()
    rows = 32_768
    index = torch.randint(rows, (2, 200_000), device="cuda")
    matrix = torch.sparse_coo_tensor(index, torch.ones(200_000, device="cuda"), (rows, rows)).coalesce()
    features = torch.randn(rows, 64, device="cuda")
    for turn in program.every(0.1):
        features = torch.nn.functional.normalize(torch.sparse.mm(matrix, features))
        if turn == 400:
            matrix.to_dense()[0, 0].item()


def square(program):
    """A simulation subtracts two vectors; once one of them is a column, so that the result is a square."""
    numpy = program.load("numpy")
    cupy = program.load("cupy")
    measured = cupy.asarray(numpy.linspace(0, 1, 20_000))
    for turn in program.every(0.1):
        expected = cupy.random.random(20_000)
        error = measured - (expected[:, None] if turn == 400 else expected)
        float(cupy.abs(error).max())


def wrap(program):
    """A filter computes the size of its border as an unsigned 32-bit number, which wraps for one damaged image."""
    driver = Driver(program)
    for turn in program.every(0.1):
        image = driver.alloc(3 * MIB)
        driver.increment(image, 3 * MIB // 4)
        width = -1024 if turn == 400 else 1024
        border = driver.alloc((width * MIB) % (1 << 32) if turn == 400 else width * 4)
        driver.free(border)
        driver.free(image)


if __name__ == "__main__":
    run_one([seed, pairs, dense, square, wrap], ["alloc_size"])
