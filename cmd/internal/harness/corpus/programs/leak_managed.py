"""A robot that receives its sensor data in managed memory, which the CPU and the GPU share, and updates a map.

Leak: each scan takes a new buffer and forgets the buffer of the scan before it. 128 KiB every 0.25 s, 1 MiB a minute.
"""
import ctypes

from driver import Driver
from program import MIB, run

SCAN, MAP = MIB // 8, 16 * MIB
ATTACH_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL


def alloc_managed(driver, count):
    """Allocates count bytes of managed memory and returns their address."""
    address = ctypes.c_uint64()
    driver.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(count), ATTACH_GLOBAL)
    return address


def main(program):
    driver = Driver(program)
    data = bytes(SCAN)
    surroundings = driver.alloc(MAP)
    scans = 0
    for _ in program.every(0.25):
        scan = alloc_managed(driver, SCAN)
        scans += 1
        driver.upload(scan, data)
        driver.increment(scan, SCAN // 4)
        driver.increment(surroundings, MAP // 4)
        driver.download(scan, 1024)
    return (scans - 1) * SCAN


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
