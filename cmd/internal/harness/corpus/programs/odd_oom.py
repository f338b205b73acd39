#!/usr/bin/env python3
"""Programs that end, or stand still, because the GPU has too little memory: oom must say so.

Each asks for more than any GPU has, so that the other programs of the corpus keep their memory.
"""
import os

from driver import Driver
from program import run_one

HUGE = 1 << 39


def scores(program):
    """A language model computes all scores of a context of one million tokens at once, and the error ends it."""
    torch = program.torch()
    for turn in program.every(0.1):
        tokens = 1_000_000 if turn == 100 else 1024
        query = torch.randn(tokens, 64, device="cuda", dtype=torch.float16)
        try:
            (query @ query.T).softmax(-1).sum().item()
        except torch.cuda.OutOfMemoryError:
            return


def model(program):
    """A server loads a checkpoint that was made for eight GPUs, and gives up."""
    torch = program.torch()
    layers = [torch.empty(1 << 26, device="cuda") for _ in range(4)]
    program.pause(5)
    try:
        layers.append(torch.empty(HUGE, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return


def cube(program):
    """A simulation's grid has twice the points in each direction once too often."""
    program.load("numpy")
    cupy = program.load("cupy")
    side = 64
    for _ in program.every(2):
        try:
            grid = cupy.zeros((side, side, side), dtype=cupy.float64)
        except cupy.cuda.memory.OutOfMemoryError:
            return
        grid += 1
        side *= 2 if side < 512 else 8


def stuck(program):
    """A server's only worker ends with the error. The server goes on, and no request is answered any more."""
    torch = program.torch()
    for turn in program.every(0.1):
        if turn < 100:
            torch.randn(1 << 20, device="cuda").sum().item()
        elif turn == 100:
            try:
                torch.empty(HUGE, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError:
                print("worker: out of memory", flush=True)


def abort(program):
    """A program in C style checks the result of its allocation, prints it and aborts."""
    driver = Driver(program)
    for turn in program.every(0.1):
        try:
            block = driver.alloc(HUGE if turn == 100 else 1 << 20)
        except RuntimeError as error:
            print(error, flush=True)
            os.sched_yield()
            return
        driver.free(block)


if __name__ == "__main__":
    run_one([scores, model, cube, stuck, abort], ["oom"])
