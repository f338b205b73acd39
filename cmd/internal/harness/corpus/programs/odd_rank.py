#!/usr/bin/env python3
"""Data-parallel trainings with four ranks on one GPU, one of which is slower: straggler must name it.

The ranks exchange gradients through the CPU with gloo. Rank 2 is the slow one.
"""
import os
import subprocess
import sys
import tempfile
import threading
import time

from program import MIB, MISSING, run_one
from training import Training

RANKS, SLOW = 4, 2
PERIOD = 0.04


def rank(program, wait):
    """Runs one rank. The slow one calls wait(training) in each step."""
    torch = program.torch()
    torch.distributed.init_process_group("gloo")
    training = Training(torch, width=512, layers=1)
    slow = int(os.environ["RANK"]) == SLOW
    for _ in range(int(program.seconds / PERIOD / 2)):
        time.sleep(PERIOD)  # for its data
        training.optimizer.zero_grad(set_to_none=True)
        training.loss(training.batch(512)).backward()
        if slow:
            wait(training)
        for parameter in training.model.parameters():
            torch.distributed.all_reduce(parameter.grad)
        training.optimizer.step()
    torch.distributed.destroy_process_group()


def ranks(program, wait):
    """Starts the ranks, or is one of them."""
    if "RANK" in os.environ:
        rank(program, wait)
        return None
    name = [sys.argv[0], *program.name.split("_")[2:]]
    port = str(29500 + os.getpid() % 1000)
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS)}
    processes = [subprocess.Popen([sys.executable, *name, "--seconds", str(program.seconds)], stdout=subprocess.DEVNULL,
                                  env={**environment, "RANK": str(number)}) for number in range(RANKS)]
    statuses = [process.wait(program.seconds + 90) for process in processes]
    if MISSING in statuses:
        sys.exit(MISSING)  # the rank said what is missing
    if any(statuses):
        raise RuntimeError(f"ranks ended with {statuses}")
    return None


def sleep(program):
    """One rank waits 20 ms longer for its data in each step."""
    return ranks(program, lambda _: time.sleep(0.02))


def work(program):
    """One rank prepares its data with a slower program: 25 ms of Python."""

    def prepare(_):
        end = time.monotonic() + 0.025
        while time.monotonic() < end:
            pass

    return ranks(program, prepare)


def lock(program):
    """Another thread of one rank holds Python's lock 30 ms after each step, while the rank wants to go on."""

    def spin():
        sys.setswitchinterval(0.03)
        end = time.monotonic() + 0.03
        while time.monotonic() < end:
            pass

    def begin(_):
        threading.Thread(target=spin).start()

    return ranks(program, begin)


def disk(program):
    """One rank writes 8 MiB to its disk in each step."""
    file = tempfile.TemporaryFile()

    def write(_):
        file.seek(0)
        file.write(os.urandom(8 * MIB))
        os.fsync(file.fileno())

    return ranks(program, write)


def rows(program):
    """One rank has eight more batches in each step."""

    def more(training):
        for _ in range(8):
            training.loss(training.batch(4096)).backward()

    return ranks(program, more)


if __name__ == "__main__":
    run_one([sleep, work, lock, disk, rows], ["straggler"])
