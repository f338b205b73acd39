"""An embedding service with JAX that appends each output to a global list.

Leak: nothing reads or empties the list. It keeps 256 KiB every 0.25 s, 2 MiB a minute.

XLA's platform allocator takes each array from the driver. Its default pool would hide the leak from the driver: the
pool takes all memory at its start, or doubles when it is full.
"""
import os

from program import run

WIDTH, ROWS = 1024, 64
EMBEDDINGS = []


def main(program):
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
    numpy = program.load("numpy")
    jax = program.load("jax")
    try:
        jax.devices("gpu")
    except RuntimeError as error:
        program.missing(f"JAX finds no GPU: {error}")
    embed = jax.jit(lambda weights, batch: jax.numpy.tanh(batch @ weights))
    generator = numpy.random.default_rng(1)
    scale = numpy.float32(WIDTH ** -0.5)
    weights = jax.device_put(generator.standard_normal((WIDTH, WIDTH), dtype=numpy.float32) * scale)
    for _ in program.every(0.25):
        batch = jax.device_put(generator.standard_normal((ROWS, WIDTH), dtype=numpy.float32))
        output = embed(weights, batch)
        numpy.asarray(output[0])
        EMBEDDINGS.append(output)
    return sum(embedding.nbytes for embedding in EMBEDDINGS)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
