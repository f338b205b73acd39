#!/usr/bin/env python3
"""Programs whose synchronous copies become slower for some seconds: copy_regression must say so."""
import ctypes
import multiprocessing
import threading
import time

from driver import Driver
from program import MIB, run_one

BEGIN, END = 40, 65  # seconds
PERIOD = 0.04
SIZE = 32 * MIB


def phases(program):
    """Yields, at each turn, whether the program is in its odd phase."""
    for _ in program.every(PERIOD):
        yield BEGIN <= program.seconds - program.left() < END


def pinned(driver, size):
    """Returns the address of pinned host memory."""
    address = ctypes.c_void_p()
    driver.call("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def flood(name, seconds):
    """Another process that copies without pause: 64 MiB from or to pinned memory."""

    class Quiet:
        """Stands for the program that a Driver asks for."""

        @staticmethod
        def missing(what):
            """Ends this process; the program itself says what is missing."""
            raise SystemExit(what)

    driver = Driver(Quiet)
    host, device = pinned(driver, 64 * MIB), driver.alloc(64 * MIB)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if name == "upload":
            driver.call("cuMemcpyHtoD_v2", device, host, ctypes.c_size_t(64 * MIB))
        else:
            driver.call("cuMemcpyDtoH_v2", host, device, ctypes.c_size_t(64 * MIB))


def beside(program, name, copies):
    """Copies from pinned memory while, in the odd phase, other processes use the same link."""
    context = multiprocessing.get_context("spawn")
    driver = Driver(program)
    host, device = pinned(driver, SIZE), driver.alloc(SIZE)
    others = []
    for odd in phases(program):
        if odd and not others:
            others = [context.Process(target=flood, args=(name, END - BEGIN - 4)) for _ in range(3)]
            for other in others:
                other.start()
        copies(driver, host, device)
    for other in others:
        other.join()


def up(program):
    """Three other programs begin to load data onto the same GPU."""
    beside(program, "upload", lambda driver, host, device:
           driver.call("cuMemcpyHtoD_v2", device, host, ctypes.c_size_t(SIZE)))


def down(program):
    """Three other programs begin to fetch results from the same GPU."""
    beside(program, "download", lambda driver, host, device:
           driver.call("cuMemcpyDtoH_v2", host, device, ctypes.c_size_t(SIZE)))


def fresh(program):
    """A loader takes new memory for each batch, instead of its old buffer. Linux clears each page during the copy."""
    driver = Driver(program)
    device = driver.alloc(SIZE)
    kept = bytes(SIZE)
    for odd in phases(program):
        driver.upload(device, bytes(SIZE) if odd else kept)


def cpus(program):
    """Many processes begin to use the CPUs, which also copy pageable memory for the driver."""
    context = multiprocessing.get_context("spawn")
    driver = Driver(program)
    device, kept = driver.alloc(SIZE), bytes(SIZE)
    others = []
    for odd in phases(program):
        if odd and not others:
            others = [context.Process(target=burn, args=(END - BEGIN - 4,)) for _ in range(48)]
            for other in others:
                other.start()
        driver.upload(device, kept)
    for other in others:
        other.join()


def burn(seconds):
    """Uses one CPU and the memory bus."""
    end, block = time.monotonic() + seconds, bytes(16 * MIB)
    while time.monotonic() < end:
        bytearray(block)


def queue(program):
    """Kernels are launched before each copy, which waits until they have run."""
    driver = Driver(program)
    host, device = pinned(driver, SIZE), driver.alloc(SIZE)
    lock = threading.Lock()
    for odd in phases(program):
        with lock:
            for _ in range(40 if odd else 0):
                driver.increment(device, SIZE // 4)
        driver.call("cuMemcpyHtoD_v2", device, host, ctypes.c_size_t(SIZE))


if __name__ == "__main__":
    run_one([up, down, fresh, cpus, queue], ["copy_regression"])
