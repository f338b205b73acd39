"""A scheduler that starts a GPU process of 1 s every 5 s and uses no GPU itself.

Innocent: each process frees its workspaces and ends with its 96 MiB of weights, which the driver then frees.
"""
import multiprocessing
import sys

from driver import Driver
from program import MIB, MISSING, Program, run, set_thread_name

WEIGHTS, WEIGHT, WORKSPACE = 24, 4 * MIB, 32 * MIB


def job(name, seconds):
    """Runs the process that the scheduler starts, under the same name."""
    set_thread_name(name)
    program = Program(name, seconds)
    driver = Driver(program)
    data = bytes(WEIGHT)
    weights = [driver.alloc(WEIGHT) for _ in range(WEIGHTS)]
    for weight in weights:
        driver.upload(weight, data)
    for _ in program.every(0.1):
        workspace = driver.alloc(WORKSPACE)
        for weight in weights[:8]:
            driver.increment(weight, WEIGHT // 4)
        driver.increment(workspace, WORKSPACE // 4)
        driver.download(workspace, 1024)
        driver.free(workspace)


def main(program):
    spawn = multiprocessing.get_context("spawn")  # a new Python, not a copy of this one
    for _ in program.every(5):
        process = spawn.Process(target=job, args=(program.name, min(1.0, program.seconds)))
        process.start()
        process.join()
        if process.exitcode == MISSING:
            sys.exit(MISSING)  # the process said what is missing
        if process.exitcode != 0:
            raise RuntimeError(f"a process ended with status {process.exitcode}")


if __name__ == "__main__":
    run(main, "innocent")
