#!/usr/bin/env python3
"""Programs that allocate far more often for some seconds than they did before: alloc_rate must say so."""
import threading

from driver import Driver
from program import MIB, run_one

BEGIN, END = 46, 54  # seconds


def odd(program):
    """Reports whether the program is in its odd phase."""
    return BEGIN <= program.seconds - program.left() < END


def tiles(program):
    """A filter allocates its workspace for each image, and later for each of the 32 tiles of an image."""
    driver = Driver(program)
    image = driver.alloc(MIB)
    for _ in program.every(0.02):
        for _ in range(32 if odd(program) else 1):
            workspace = driver.alloc(64 << 10)
            driver.increment(image, 1024)
            driver.free(workspace)


def empty(program):
    """A service empties PyTorch's cache after each request, because somebody read that this saves memory."""
    torch = program.torch()
    layers = [torch.randn(1024, 1024, device="cuda") for _ in range(8)]
    for _ in program.every(0.01):
        outputs = [torch.randn(1024, 1024, device="cuda")]
        for layer in layers:
            outputs.append(outputs[-1] @ layer)
        del outputs
        if odd(program):
            torch.cuda.empty_cache()


def nopool(program):
    """An analysis with CuPy switches the memory pool off for some seconds; each temporary array is allocated."""
    program.load("numpy")
    cupy = program.load("cupy")
    memory = cupy.get_default_memory_pool()
    data = cupy.random.random(1 << 18)
    for _ in program.every(0.05):
        cupy.cuda.set_allocator(None if odd(program) else memory.malloc)
        result = data
        for _ in range(40):
            result = cupy.sqrt(result * 1.5 + 0.5)
        float(result[0])


def pool(program):
    """A service takes scratch memory from its own pool. When the pool's limit is lowered, requests allocate it."""
    driver = Driver(program)
    kept = driver.alloc(MIB)
    for _ in program.every(0.01):
        driver.increment(kept, 1024)
        if odd(program) or program.random.random() < 0.2:
            for block in [driver.alloc(256 << 10) for _ in range(12 if odd(program) else 1)]:
                driver.free(block)


def again(program):
    """A service has one worker; for some seconds 16 of them make the same buffers for a request again and again."""
    driver = Driver(program)
    kept = driver.alloc(MIB)
    lock = threading.Lock()

    def retry():
        driver.bind()
        for _ in range(8):
            block = driver.alloc(128 << 10)
            with lock:
                driver.free(block)

    for _ in program.every(0.05):
        driver.increment(kept, 1024)
        workers = [threading.Thread(target=retry) for _ in range(16 if odd(program) else 1)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    run_one([tiles, empty, nopool, pool, again], ["alloc_rate"])
