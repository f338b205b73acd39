"""A training loop with JAX, without preallocation, that appends the activations of each step to a global list.

Leak: nothing reads the list. It keeps 4 MiB every 0.2 s: 40 MiB a minute. XLA's allocator asks the driver for regions
that double in size.
"""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

from program import run

WIDTH = 1024
ROWS = 1024
HISTORY = []


def main(program):
    jax = program.load("jax")
    numpy = program.load("jax.numpy")
    try:
        jax.devices("gpu")
    except RuntimeError as error:
        program.missing(f"JAX finds no GPU: {error}")

    def loss(weights, batch):
        hidden = numpy.tanh(batch @ weights[0])
        return numpy.mean((hidden @ weights[1] - batch) ** 2), hidden

    @jax.jit
    def step(weights, batch):
        (value, hidden), gradients = jax.value_and_grad(loss, has_aux=True)(weights, batch)
        return [weight - 0.01 * gradient for weight, gradient in zip(weights, gradients)], value, hidden

    key = jax.random.PRNGKey(1)
    weights = [jax.random.normal(jax.random.fold_in(key, number), (WIDTH, WIDTH)) * 0.02 for number in range(2)]
    for turn in program.every(0.2):
        batch = jax.random.normal(jax.random.fold_in(key, 2 + turn), (ROWS, WIDTH))
        weights, value, hidden = step(weights, batch)
        HISTORY.append(hidden)
        if turn % 20 == 0:
            float(value)
    return sum(hidden.nbytes for hidden in HISTORY)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
