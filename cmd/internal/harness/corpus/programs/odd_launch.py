#!/usr/bin/env python3
"""Programs that launch kernels at a steady rate, and far fewer from second 40 on: launch_collapse must say so."""
import os
import subprocess
import tempfile
import threading
import time

from program import MIB, run_one
from training import Training

BEGIN = 40  # seconds


def odd(program):
    """Reports whether the program is in its odd phase."""
    return program.seconds - program.left() >= BEGIN


def steps(program):
    """Yields a training and its steps, 30 a second at most."""
    training = Training(program.torch(), width=512)
    for _ in program.every(1 / 30):
        training.step(training.batch(256)).item()
        yield training


def data(program):
    """The storage of the training data becomes slow: each batch takes 0.3 s."""
    for _ in steps(program):
        if odd(program):
            time.sleep(0.3)


def lock(program):
    """Eight threads of a metrics library run without end and hold Python's lock most of the time."""

    def spin():
        while program.left() > 0:
            sum(range(1000))

    threads = []
    for _ in steps(program):
        if odd(program) and not threads:
            threads = [threading.Thread(target=spin, daemon=True) for _ in range(8)]
            for thread in threads:
                thread.start()


def log(program):
    """Each step writes its state into a pipe whose reader becomes slow."""
    program.torch()  # before the reader starts
    reader = subprocess.Popen(
        ["sh", "-c", f"sleep {BEGIN + 5}; while head -c 65536 | grep -q .; do sleep 0.2; done"], stdin=subprocess.PIPE)
    line = b"x" * 65536
    for _ in steps(program):
        if odd(program):
            reader.stdin.write(line)
            reader.stdin.flush()
    reader.kill()


def save(program):
    """The training writes a checkpoint of 100 MiB after each step instead of each hour."""
    with tempfile.TemporaryFile() as file:
        for _ in steps(program):
            if odd(program):
                file.seek(0)
                for _ in range(8):
                    file.write(os.urandom(12 * MIB))
                os.fsync(file.fileno())


def size(program):
    """Another term of the loss multiplies matrices of 16,384 rows in each step, so the GPU takes far longer."""
    torch = program.torch()
    matrix = torch.randn(16384, 16384, device="cuda") / 128
    for _ in steps(program):
        if odd(program):
            (matrix @ matrix @ matrix).sum().item()


if __name__ == "__main__":
    run_one([data, lock, log, save, size], ["launch_collapse"])
