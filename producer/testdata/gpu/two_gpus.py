"""Runs three processes on a machine with two GPUs, and compares live bytes per GPU with the programs' figures.

Two processes see one GPU each, as ordinal 0. The third uses both.

usage: two_gpus.py
"""
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GPUTAP = os.path.join(HERE, "../../../bin/gputap")

binary = os.path.join(tempfile.gettempdir(), "gputap-two-gpus")
subprocess.run(["nvcc", "-o", binary, os.path.join(HERE, "two_gpus.cu")], check=True)
watch = subprocess.Popen([GPUTAP, "run", "--features", "memory", "-o", "json", "--display-interval", "500ms", "--metrics-addr", ""],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
time.sleep(2)
programs, truth = [], {}
for visible, arguments in (("0", ["0:100"]), ("1", ["0:300"]), ("1,0", ["0:700", "1:50"])):
    p = subprocess.Popen([binary, *arguments], env={**os.environ, "CUDA_VISIBLE_DEVICES": visible},
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for device in json.loads(p.stdout.readline()):
        truth[p.pid, device["uuid"]] = device["bytes"]
    programs.append(p)
time.sleep(2)
line = ""
deadline = time.time() + 3
while time.time() < deadline:
    line = watch.stdout.readline()
watch.terminate()
for p in programs:
    p.stdin.close()
    p.wait()
seen = {}
for process in json.loads(line)["processes"]:
    for uuid, gpu in process["gpus"].items():
        if gpu["live_bytes"]:
            seen[process["pid"], uuid] = gpu["live_bytes"]
cards = sorted({uuid for _, uuid in truth})
print("| process sees | card | by the program | by gputap | |\n| --- | --- | --- | --- | --- |")
for (p, (visible, _)) in zip(programs, (("0", 0), ("1", 0), ("1,0", 0))):
    for uuid in cards:
        if (p.pid, uuid) in truth or (p.pid, uuid) in seen:
            t, s = truth.get((p.pid, uuid), 0), seen.get((p.pid, uuid), 0)
            print("| CUDA_VISIBLE_DEVICES=%s | %s | %d | %d | %s |" % (visible, "first second".split()[cards.index(uuid)], t, s, "" if t == s else "differs"))
print("%d cards" % len(cards))
sys.exit(0 if seen == truth and len(cards) == 2 else 3)
