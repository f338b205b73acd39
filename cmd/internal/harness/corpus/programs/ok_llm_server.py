"""A server of a language model: 64 small buffers of weights, then 32 large buffers of KV cache, then requests.

Innocent: the buffers live as long as the server. A KV buffer is 77 times as large as a weight, as 1.5 GiB are to
20 MiB; together they take 5.4 GiB within the first 5 s.
"""
from driver import Driver
from program import MIB, run

WEIGHTS, WEIGHT = 64, 35 * MIB // 16
KV_BUFFERS, KV = 32, 168 * MIB
SCRATCH, PROMPT = 16 * MIB, MIB // 16


def load(program, driver):
    """Allocates the weights, copies them to the GPU, allocates the KV cache, and returns all buffers."""
    data = bytes(WEIGHT)
    buffers = []
    for _ in range(WEIGHTS):
        buffers.append(driver.alloc(WEIGHT))
        driver.upload(buffers[-1], data)
        program.pause(0.05)
    for _ in range(KV_BUFFERS):
        buffers.append(driver.alloc(KV))
        program.pause(0.05)
    return buffers


def main(program):
    driver = Driver(program)
    buffers = load(program, driver)
    prompt = bytes(PROMPT)
    for turn in program.every(0.1):
        scratch = driver.alloc(SCRATCH)
        driver.upload(scratch, prompt)
        for layer in range(8):
            driver.increment(buffers[(turn + layer) % len(buffers)], WEIGHT // 4)
        driver.download(scratch, PROMPT)
        driver.free(scratch)


if __name__ == "__main__":
    run(main, "innocent")
