"""Data-parallel training with four equal ranks on one GPU, which exchange gradients with gloo.

Innocent: each step takes every rank about as long, with the noise of a busy machine.
"""
from odd_rank import ranks
from program import run


def main(program):
    return ranks(program, lambda _: None)


if __name__ == "__main__":
    run(main, "innocent")
