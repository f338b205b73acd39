"""Training with JAX without preallocation, with batches of four sizes.

Innocent: XLA's pool grows in steps until each batch size has been seen, and returns nothing.
"""
import os

from jax_training import train
from program import run


def main(program):
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    train(program, rows=[256, 1024, 2048, 4096])


if __name__ == "__main__":
    run(main, "innocent")
