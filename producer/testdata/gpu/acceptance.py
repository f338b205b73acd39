"""Runs programs on a real GPU under gputap and compares with what they say of themselves.

Needs bin/gputap, nvcc, PyTorch, CuPy and JAX; no Go. Prints the table of docs/gpu-acceptance.md and
exits 3 when a figure differs.   usage: acceptance.py [OUT]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
GPUTAP = os.path.join(ROOT, "bin/gputap")
LAUNCHES = ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz")
rows, differ = [], 0


def row(program, what, truth, seen, lost, tolerance=0.0):
    global differ
    ok = truth is None or seen is not None and abs(seen - truth) <= tolerance * abs(truth)
    differ += not ok
    rows.append((program, what, "–" if truth is None else truth, seen, lost, "" if ok else "differs"))


def watch(name, command, env=None, store=None):
    """Runs a program under gputap: its own word, its process as gputap saw it, what was lost."""
    with tempfile.TemporaryDirectory() as scratch:
        truth = os.path.join(scratch, "truth.json")
        arguments = [GPUTAP, "run", "-o", "json", "--display-interval", "1h", "--metrics-addr", ""]
        if store:
            arguments += ["--store", store]
        done = subprocess.run(arguments + ["--"] + command + [truth], env={**os.environ, **(env or {})},
                              capture_output=True, text=True, cwd=HERE)
        if done.returncode not in (0, 4):
            print(name, "failed:", done.returncode, done.stderr[-3000:])
            return None, None, None
        final = json.loads(done.stdout.strip().splitlines()[-1])
        processes = [p for p in final["processes"] if p["calls"]]
        process = max(processes, key=lambda p: sum(c["ok"] for c in p["calls"].values()))
        return json.load(open(truth)), process, sum(final["lost"].values())


def launches(process):
    return sum(process["calls"].get(symbol, {"ok": 0})["ok"] for symbol in LAUNCHES)


def nvcc(cudart):
    binary = os.path.join(tempfile.gettempdir(), "gputap-program-" + cudart)
    subprocess.run(["nvcc", "-cudart", cudart, "-o", binary, os.path.join(HERE, "program.cu")], check=True)
    name = "nvcc, %s cudart" % cudart
    truth, process, lost = watch(name, [binary])
    if truth is None:
        return row(name, "run", 1, None, None)
    for symbol, (ok, failed) in truth["calls"].items():
        seen = process["calls"].get(symbol, {"ok": 0, "failed": 0})
        row(name, symbol + " ok", ok, seen["ok"], lost)
        if failed or seen["failed"]:
            row(name, symbol + " failed", failed, seen["failed"], lost)
    for kernel, n in truth["launches"].items():
        row(name, kernel, n, process["launches"].get(kernel, 0), lost)
    for direction, n in truth["copies"].items():
        row(name, direction + " bytes", n, process["copies"][direction]["bytes"], lost)
    row(name, "unfreed at exit, bytes", truth["unfreed"], process["unfreed_at_exit_bytes"], lost)
    row(name, "GPUs without UUID", 0, int("unknown" in process["gpus"]), lost)


def framework(name, script, env=None, store=None):
    truth, process, lost = watch(name, [sys.executable, os.path.join(HERE, script)], env, store)
    if truth is None:
        return row(name, "run", 1, None, None)
    row(name, "kernels (CUPTI)", truth["kernels"], launches(process), lost)
    row(name, "kernel names (CUPTI)", None, len(process["launches"]), lost)
    row(name, "launches without a name", 0, process["launches"].get("unknown", 0), lost)
    for kernel, n in truth.get("named", {}).items():
        row(name, kernel, n, process["launches"].get(kernel, 0), lost)
    row(name, "unfreed bytes on an unknown GPU", 0, process["gpus"].get("unknown", {"live_bytes": 0})["live_bytes"], lost)
    if truth.get("reserved_peak"):
        row(name, "peak bytes ≥ allocator's reserved peak", 1, int(process["peak_bytes"] >= truth["reserved_peak"]), lost)
    for key in ("num_device_alloc", "reserved", "reserved_peak", "mem_get_info", "pool"):
        if truth.get(key) is not None:
            seen = process["calls"].get("cuMemAlloc_v2", {"ok": 0})["ok"] if key == "num_device_alloc" else process["peak_bytes"]
            rows.append((name, key + " (for comparison)", truth[key], seen, lost, ""))
    if truth.get("htod_bytes"):
        row(name, "HtoD bytes ≥ batches sent", 1, int(process["copies"]["HtoD"]["bytes"] >= truth["htod_bytes"]), lost)
    print(name, json.dumps({"calls": process["calls"], "truth": {k: v for k, v in truth.items()}}), file=sys.stderr)


def main():
    store = tempfile.mkdtemp()
    for cudart in ("shared", "static"):
        nvcc(cudart)
    framework("PyTorch, default allocator", "torch_train.py")
    framework("PyTorch, expandable segments", "torch_train.py", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    framework("PyTorch, cudaMallocAsync", "torch_train.py", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
    framework("CuPy", "cupy_program.py")
    framework("JAX", "jax_program.py")
    if len(sys.argv) > 1:  # a longer run without CUPTI, to keep
        watch("recording", [sys.executable, os.path.join(HERE, "torch_train.py")],
              {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync", "STEPS": "800"}, store)
    print("| program | what | by truth | by gputap | lost | |\n| --- | --- | --- | --- | --- | --- |")
    for r in rows:
        print("| " + " | ".join(str(c) for c in r) + " |")
    if len(sys.argv) > 1:
        subprocess.run(["tar", "-C", store, "-czf", os.path.join(sys.argv[1], "pytorch-store.tar.gz"), "."], check=True)
    shutil.rmtree(store)
    sys.exit(3 if differ else 0)


main()
