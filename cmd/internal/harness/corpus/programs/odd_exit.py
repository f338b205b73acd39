#!/usr/bin/env python3
"""Programs in C style that free their memory at their end, but not all of it: unfreed_at_exit must say so."""
from driver import Driver
from program import MIB, run_one

GIB = 1 << 30


def serve(program, requests=150):
    """Allocates, uses and frees 64 MiB a request. Yields the driver and the number of each request."""
    driver = Driver(program)
    for turn in program.every(0.1):
        if turn == requests:
            return
        block = driver.alloc(64 * MIB)
        driver.increment(block, 1024)
        yield driver, turn
        driver.free(block)


def solver(program):
    """A solver frees its matrices, and not the workspace of 2 GiB that a library call returned."""
    unfreed = None
    for driver, turn in serve(program):
        if turn == 0:
            unfreed = driver.alloc(2 * GIB)
    return 2 * GIB if unfreed else 0


def cache(program):
    """A service keeps 24 results of 64 MiB in a cache, and frees only those that it evicts."""
    kept = []
    for driver, _ in serve(program):
        kept.append(driver.alloc(64 * MIB))
        if len(kept) > 24:
            driver.free(kept.pop(0))
    return len(kept) * 64 * MIB


def error(program):
    """A request in five ends with an error before its second buffer of 48 MiB is freed."""
    leaked = 0
    for driver, turn in serve(program):
        second = driver.alloc(48 * MIB)
        if turn % 5 == 4:
            leaked += 48 * MIB
        else:
            driver.free(second)
    return leaked


def halves(program):
    """A program frees the first of each pair of buffers, because its loop ends at half of the list."""
    pairs = []
    for driver, turn in serve(program):
        if turn < 32:
            pairs += [driver.alloc(32 * MIB), driver.alloc(32 * MIB)]
    for block in pairs[:len(pairs) // 2]:
        driver.free(block)
    return len(pairs) // 2 * 32 * MIB


def grown(program):
    """A vector doubles its buffer, copies it, and forgets the old one."""
    size, leaked, buffer = 16 * MIB, 0, None
    for driver, turn in serve(program):
        if turn % 25 == 0:
            leaked += size if buffer else 0
            size *= 2 if buffer else 1
            buffer = driver.alloc(size)
    driver.free(buffer)
    return leaked


if __name__ == "__main__":
    run_one([solver, cache, error, halves, grown], ["unfreed_at_exit"])
