"""A training loop with JAX, without preallocation, that donates weights and momentum, and evaluates every 6 s.

Innocent: each step writes over the weights of the step before. The batch for evaluation is four times as large.
"""
import functools
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

from program import run

WIDTH = 2048
LAYERS = 4
ROWS = 512


def main(program):
    jax = program.load("jax")
    numpy = program.load("jax.numpy")
    try:
        jax.devices("gpu")
    except RuntimeError as error:
        program.missing(f"JAX finds no GPU: {error}")

    def loss(weights, batch):
        hidden = batch
        for weight in weights:
            hidden = numpy.tanh(hidden @ weight)
        return numpy.mean((hidden - batch) ** 2)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(weights, momentum, batch):
        value, gradients = jax.value_and_grad(loss)(weights, batch)
        momentum = [0.9 * old + gradient for old, gradient in zip(momentum, gradients)]
        return [weight - 0.01 * change for weight, change in zip(weights, momentum)], momentum, value

    evaluate = jax.jit(loss)
    key = jax.random.PRNGKey(1)
    weights = [jax.random.normal(jax.random.fold_in(key, number), (WIDTH, WIDTH)) * 0.02 for number in range(LAYERS)]
    momentum = [numpy.zeros((WIDTH, WIDTH)) for _ in range(LAYERS)]
    held_out = jax.random.normal(jax.random.fold_in(key, LAYERS), (4 * ROWS, WIDTH))
    for turn in program.every(0.2):
        batch = jax.random.normal(jax.random.fold_in(key, LAYERS + 1 + turn), (ROWS, WIDTH))
        weights, momentum, value = step(weights, momentum, batch)
        if turn % 20 == 0:
            float(value)
        if turn % 30 == 29:
            float(evaluate(weights, held_out))


if __name__ == "__main__":
    run(main, "innocent")
