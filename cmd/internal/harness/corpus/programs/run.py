#!/usr/bin/env python3
"""Runs programs of the corpus on this machine's GPU and records each group of them with gputap.

Example, as root:
  python3 run.py --programs leak_list,ok_train --parallel 2 --gputap bin/gputap --out /tmp/corpus

For each group of --parallel programs it starts the command of --record, waits --settle seconds, and runs the programs.
Then it sends SIGINT to the command and waits for its end. --out receives the recordings, the output of every command,
and labels.json:
  recordings  file, exit status of the recorder, factor of time, names of the programs
  programs    the last line of each program, with pid, status and recording
  failed      status and end of the error output of each program that printed no line; status 77: something is missing

Status 1: a program or a recorder failed, or nothing was recorded.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RECORD = "{gputap} run --features memory,launch,copy,sync,torch --record {file} -o json"
MISSING = 77
IMPORT_SECONDS = 180  # a cold import of PyTorch, eight at once
STOP_SECONDS = 120


def known_programs():
    """Returns the names of all programs in this directory. Files with the prefix odd_ hold several."""
    names = [path.stem for kind in ("leak_*.py", "ok_*.py") for path in HERE.glob(kind)]
    for path in HERE.glob("odd_*.py"):
        listed = re.search(r"run_one\(\[([^]]*)\]", path.read_text())
        names += [f"{path.stem}_{name}" for name in listed[1].split(", ")]
    return sorted(names)


def command(name):
    """Returns the file and the arguments of a program."""
    kind, word, *rest = name.split("_")
    if kind == "odd":
        return [str(HERE / f"{kind}_{word}.py"), *rest]
    return [str(HERE / f"{name}.py")]


def arguments():
    """Reads the command line and checks it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(known_programs()), help="names, separated by commas (all)")
    parser.add_argument("--parallel", type=int, default=8, help="programs that run at once (8)")
    parser.add_argument("--gputap", default="bin/gputap", help="{gputap} in --record (bin/gputap)")
    parser.add_argument("--record", default=RECORD, help="command that records; {file} is the file (%(default)s)")
    parser.add_argument("--settle", type=float, default=5, help="seconds from the recorder's start to the programs (5)")
    parser.add_argument("--seconds", type=float, default=80, help="length of each program (80)")
    parser.add_argument("--factor", type=int, default=30, help="how much slower tests let event time run (30)")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for the results")
    options = parser.parse_args()
    options.programs = [name for name in options.programs.split(",") if name]
    unknown = sorted(set(options.programs) - set(known_programs()))
    if unknown:
        parser.error(f"--programs: unknown {', '.join(unknown)}; use some of {', '.join(known_programs())}")
    if not options.programs or len(set(options.programs)) != len(options.programs):
        parser.error("--programs: name each program once, and at least one")
    if options.parallel < 1:
        parser.error(f"--parallel {options.parallel}: use 1 or more")
    return options


class Recorder:
    """The command that records, from its start to its end."""

    def __init__(self, options, number):
        self.file = options.out / f"group-{number}.gputap"
        command = [part.format(gputap=options.gputap, file=self.file) for part in shlex.split(options.record)]
        output = options.out / f"group-{number}"
        with open(f"{output}.out", "wb") as out, open(f"{output}.err", "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        time.sleep(options.settle)
        status = self.process.poll()
        if status is not None:
            raise SystemExit(f"run.py: start the recorder: {shlex.join(command)}: it ended with status {status} before "
                             f"the programs began; see {output}.err")

    def stop(self):
        """Ends the recording and returns the exit status of the command."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def start(name, options):
    """Starts one program in a process group of its own, so that its workers can be ended with it."""
    with open(options.out / f"{name}.out", "wb") as out, open(options.out / f"{name}.err", "wb") as err:
        return subprocess.Popen(
            [sys.executable, *command(name), "--seconds", str(options.seconds)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)


def finish(name, process, until, options):
    """Waits for a program and returns its last line, or None with the reason."""
    try:
        status = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    lines = (options.out / f"{name}.out").read_text(errors="replace").splitlines()
    if status == 0 and lines:
        return {**json.loads(lines[-1]), "pid": process.pid}, None
    errors = (options.out / f"{name}.err").read_text(errors="replace").splitlines()
    return None, {"status": status, "error": "\n".join(errors[-5:])}


def record_group(number, names, options, results):
    """Records one group of programs and adds what came of it to the results."""
    recorder = Recorder(options, number)
    running = {}
    try:
        running = {name: start(name, options) for name in names}
        until = time.monotonic() + options.seconds + IMPORT_SECONDS
        for name in names:
            line, failure = finish(name, running[name], until, options)
            if line:
                results["programs"][name] = {**line, "status": 0, "recording": recorder.file.name}
            else:
                results["failed"][name] = failure
    finally:
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        status = recorder.stop()
    results["recordings"].append({"file": recorder.file.name, "status": status, "factor": options.factor,
                                  "programs": names})


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"seconds": options.seconds, "recordings": [], "programs": {}, "failed": {}}
    for first in range(0, len(options.programs), options.parallel):
        number = first // options.parallel + 1
        names = options.programs[first:first + options.parallel]
        print(f"group {number}: {', '.join(names)}", flush=True)
        record_group(number, names, options, results)
        (options.out / "labels.json").write_text(json.dumps(results, indent=1) + "\n")
    for name, failure in results["failed"].items():
        print(f"{name}: status {failure['status']}: {failure['error']}", file=sys.stderr)
    broken = any(failure["status"] != MISSING for failure in results["failed"].values())
    lost = any(recording["status"] != 0 for recording in results["recordings"])
    sys.exit(1 if broken or lost or not results["programs"] else 0)


if __name__ == "__main__":
    main()
