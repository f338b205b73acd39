"""An image filter in C style: it allocates an image and a workspace, runs kernels, and frees both.

Leak: a damaged image returns early without the free of its workspace. 2 MiB for one image in four, 11 MiB
a minute.
"""
from driver import Driver
from program import MIB, run

IMAGE, WORKSPACE = 3 * MIB, 2 * MIB


def filter_image(driver, data, damaged):
    """Filters one image and returns the bytes that it forgot to free."""
    image = driver.alloc(IMAGE)
    workspace = driver.alloc(WORKSPACE)
    driver.upload(image, data)
    driver.increment(image, IMAGE // 4)
    if damaged:
        driver.free(image)
        return WORKSPACE
    for _ in range(4):
        driver.increment(workspace, WORKSPACE // 4)
    driver.download(image, IMAGE)
    driver.free(workspace)
    driver.free(image)
    return 0


def main(program):
    driver = Driver(program)
    data = bytes(IMAGE)
    return sum(filter_image(driver, data, program.random.random() < 0.25) for _ in program.every(0.1))


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
