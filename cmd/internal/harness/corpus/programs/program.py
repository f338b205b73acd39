"""The frame of every program of the corpus: its process name, its pace, its length and its last line.

A program sleeps between its turns. Tests multiply its event time by 30, so 1 s here stands for 30 s, 80 s for 40 min,
and a request every 0.1 s for a request every 3 s. Rates in the comments are in stretched time.

The last line is one JSON object:
  name          file name without .py, also the process name in Linux
  label         leak, innocent, or odd: one rule of the anomaly fold must find it
  expect        states and rules, one of which must be reported for a leak; empty: no suspect and no alert
  leaked_bytes  GPU memory that the program kept without need at its end, by its own count
  seconds       from the end of its imports to its end

Status 77: a package or the GPU is missing; the message says which.
"""
import argparse
import ctypes
import importlib
import json
import pathlib
import random
import sys
import time

MIB = 1 << 20
DEFAULT_SECONDS = 80.0
MISSING = 77
PR_SET_NAME = 15


def set_thread_name(name):
    """Names the calling thread. The name of the first thread is the name of the process. At most 15 bytes."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def tensor_bytes(tensors):
    """Returns the bytes of the elements of PyTorch tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Program:
    """One run of a program. Several threads may use it."""

    def __init__(self, name, seconds):
        self.name = name
        self.seconds = seconds
        self.random = random.Random(name)
        self.began = time.monotonic()

    def missing(self, what):
        """Ends the program because something is not installed."""
        print(f"{self.name}: cannot run: {what}; install it or leave this program out", file=sys.stderr)
        sys.exit(MISSING)

    def load(self, package):
        """Imports a package and returns it. The program's time begins after its last import."""
        try:
            module = importlib.import_module(package)
        except ImportError as error:
            self.missing(f"import {package}: {error}")
        self.began = time.monotonic()
        return module

    def torch(self):
        """Imports PyTorch and returns it, if it finds a GPU."""
        torch = self.load("torch")
        if not torch.cuda.is_available():
            self.missing("PyTorch finds no GPU")
        torch.manual_seed(1)
        return torch

    def left(self):
        """Returns the seconds until the program must end."""
        return self.began + self.seconds - time.monotonic()

    def pause(self, seconds):
        """Sleeps, at most until the program must end."""
        time.sleep(max(0.0, min(seconds, self.left())))

    def every(self, period):
        """Yields 0, 1, 2 … one each period (seconds) until the program must end, and always 0.

        After a turn that took longer than its period, the next one begins at once and sets the pace anew.
        """
        turn, due = 0, time.monotonic()
        while turn == 0 or self.left() > 0:
            yield turn
            turn += 1
            due = max(due + period, time.monotonic())
            self.pause(due - time.monotonic())


def run_one(programs, expect):
    """Runs the program that the first argument names. Its name is that of the file, and its own."""
    stem = pathlib.Path(sys.argv[0]).stem
    mains = {main.__name__: main for main in programs}
    if len(sys.argv) < 2 or sys.argv[1] not in mains:
        sys.exit(f"usage: {stem}.py {'|'.join(mains)} [--seconds N]")
    run(mains[sys.argv[1]], "odd", expect, f"{stem}_{sys.argv.pop(1)}")


def run(main, label, expect=(), name=None):
    """Runs main(program), which returns the bytes that it leaked or None, and prints the last line."""
    name = name or pathlib.Path(sys.argv[0]).stem
    set_thread_name(name)
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS,
                        help="length without the imports (80); 0: one turn")
    program = Program(name, parser.parse_args().seconds)
    leaked = main(program) or 0
    print(json.dumps({
        "name": name, "label": label, "expect": list(expect), "leaked_bytes": leaked,
        "seconds": round(time.monotonic() - program.began, 1),
    }), flush=True)
