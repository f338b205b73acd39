"""Training with JAX in its ordinary mode: XLA takes a fixed share of the GPU at its start, here 4 %.

Innocent: one large allocation serves the whole run.
"""
import os

from jax_training import train
from program import run


def main(program):
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)  # the older name; JAX rejects both together
    os.environ["XLA_CLIENT_MEM_FRACTION"] = ".04"
    train(program, rows=[512])


if __name__ == "__main__":
    run(main, "innocent")
