"""An image decoder, an extension without a framework, that allocates three buffers of the driver for each image.

Leak: for gray images, 30 % of all, it returns before it frees the scratch buffer, 1 to 9 MiB. With an image every 0.2 s
this makes about 13 MiB a minute.
"""
from driver import Driver
from program import run

RESULT = 64 << 10


def main(program):
    driver = Driver(program)
    leaked = 0

    def decode(side, gray):
        size = 4 * side * side
        source, scratch, result = driver.alloc(size), driver.alloc(size), driver.alloc(RESULT)
        driver.upload(source, bytes(size))
        driver.increment(source, side * side)
        driver.increment(scratch, side * side)
        driver.increment(result, RESULT // 4)
        driver.download(result, RESULT)
        driver.free(source)
        driver.free(result)
        if gray:
            return size
        driver.free(scratch)
        return 0

    for _ in program.every(0.2):
        side = program.random.randrange(512, 1537, 64)
        leaked += decode(side, program.random.random() < 0.3)
    return leaked


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
