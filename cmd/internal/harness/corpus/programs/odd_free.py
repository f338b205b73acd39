#!/usr/bin/env python3
"""Programs in C style that free what they hold before they end, but forget a part: unfreed_at_exit must say so."""
import threading

from driver import Driver
from program import MIB, run_one

GIB = 1 << 30


def serve(program):
    """Holds 4 GiB of weights and answers 100 requests with 64 MiB each. Returns the driver and the weights."""
    driver = Driver(program)
    weights = [driver.alloc(512 * MIB) for _ in range(8)]
    for turn in program.every(0.1):
        if turn == 100:
            break
        block = driver.alloc(64 * MIB)
        driver.increment(block, 1024)
        driver.free(block)
    return driver, weights


def plan(program):
    """A library made a workspace of 2 GiB; the program frees its own memory, and does not destroy the plan."""
    driver, weights = serve(program)
    driver.alloc(2 * GIB)
    for block in weights:
        driver.free(block)
    return 2 * GIB


def last(program):
    """The loop that frees the layers ends two layers too early."""
    driver, weights = serve(program)
    for index in range(len(weights) - 2):
        driver.free(weights[index])
    return 2 * 512 * MIB


def thread(program):
    """A thread that prefetches ends without freeing its two buffers."""
    driver, weights = serve(program)

    def prefetch():
        driver.bind()
        for _ in range(2):
            driver.alloc(600 * MIB)

    worker = threading.Thread(target=prefetch)
    worker.start()
    worker.join()
    for block in weights:
        driver.free(block)
    return 2 * 600 * MIB


def grown(program):
    """A buffer grows three times. Only the newest one is freed."""
    driver, weights = serve(program)
    buffers = [driver.alloc(size * MIB) for size in (256, 512, 1024)]
    for block in [*weights, buffers[-1]]:
        driver.free(block)
    return 768 * MIB


def error(program):
    """An error in the last request skips the free of its 1 GiB; the handler of the error frees the weights."""
    driver, weights = serve(program)
    try:
        driver.alloc(GIB)
        raise ValueError("the request is damaged")
    except ValueError:
        for block in weights:
            driver.free(block)
    return GIB


if __name__ == "__main__":
    run_one([plan, last, thread, grown, error], ["unfreed_at_exit"])
