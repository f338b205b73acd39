"""A renderer that takes its frames from the driver's memory pool, which is set to return nothing to the GPU.

Leak: the renderer drops late frames without cuMemFreeAsync. 8 MiB for one frame in eight, 16 MiB a minute.
"""
import ctypes

from driver import Driver
from program import MIB, run

FRAME, PIXELS = 8 * MIB, MIB // 16
RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
LATE = 0.125


def keep_all(driver):
    """Sets the default pool of GPU 0 to keep freed memory for later frames."""
    pool, threshold = ctypes.c_void_p(), ctypes.c_uint64(2 ** 64 - 1)
    driver.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
    driver.call("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, ctypes.byref(threshold))


def render(driver, scene, late):
    """Renders one frame and returns the bytes that it forgot to free."""
    frame = ctypes.c_uint64()
    driver.call("cuMemAllocAsync", ctypes.byref(frame), ctypes.c_size_t(FRAME), None)
    driver.upload(frame, scene)
    for _ in range(4):
        driver.increment(frame, FRAME // 4)
    if late:
        return FRAME
    driver.download(frame, PIXELS)
    driver.call("cuMemFreeAsync", frame, None)
    return 0


def main(program):
    driver = Driver(program)
    keep_all(driver)
    scene = bytes(PIXELS)
    return sum(render(driver, scene, program.random.random() < LATE) for _ in program.every(0.125))


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
