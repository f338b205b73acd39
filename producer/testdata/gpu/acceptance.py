"""Runs programs on a real GPU under gputap and compares gputap's figures with the programs' own figures.

Needs bin/gputap, nvcc, PyTorch, CuPy and JAX, but no Go. Prints the tables of docs/measurements/gpu-*.md.
Exits with status 3 when a figure differs.

usage: acceptance.py [OUT]
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
EVENTS = os.path.join(ROOT, "bin/events")
ALL = "memory,launch,copy,sync"
GPU = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True).stdout.split()[0]
LAUNCHES = ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz")
COPIES = ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2")
rows, differ, peaks = [], 0, {}


def row(program, what, truth, seen, lost, tolerance=0.0):
    global differ
    ok = truth is None or seen is not None and abs(seen - truth) <= tolerance * abs(truth)
    differ += not ok
    rows.append((program, what, "–" if truth is None else truth, seen, lost, "" if ok else "differs"))


def watch(name, command, env=None, store=None):
    """Runs a program under gputap. Returns the program's figures, its process as gputap reports it, and the lost events."""
    with tempfile.TemporaryDirectory() as scratch:
        truth = os.path.join(scratch, "truth.json")
        arguments = [GPUTAP, "run", "--features", ALL, "-o", "json", "--display-interval", "1h", "--metrics-addr", ""]
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
        said = open(truth).read()
        said = json.loads(said) if said.startswith("{\"") and said.count("\n") < 2 else said
        return said, process, sum(final["lost"].values())


def events(store, pid):
    """Returns all events of one process, in order."""
    done = subprocess.run([EVENTS, store], capture_output=True, text=True, check=True)
    return [e for e in map(json.loads, done.stdout.splitlines()) if e["pid"] == pid]


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


# Events of the CUDA runtime itself: the program does not count them.
APART = ("context_create", "context_retain", "context_release", "context_destroy", "module_load", "module_unload", "exec", "exit")


def operations(name, *flags):
    """Checks that each operation is one event with the right op, class, direction, bytes, result and GPU."""
    binary, store = os.path.join(tempfile.gettempdir(), "gputap-operations"), tempfile.mkdtemp()
    subprocess.run(["nvcc", "-o", binary, *flags, os.path.join(HERE, "operations.cu")], check=True)
    truth, process, lost = watch(name, [binary], store=store)
    if truth is None:
        return row(name, "run", 1, None, None)
    wanted = [json.loads(line) for line in truth.splitlines()]
    fields = ("op", "class", "direction", "bytes", "result")
    seen = [e for e in events(store, process["pid"]) if e["op"] not in APART]
    for e in seen:
        e.setdefault("class", ""), e.setdefault("direction", "")
    wrong = []
    for w, e in zip(wanted, seen):
        if any(w[f] != e[f] for f in fields):
            wrong.append("%s: %s seen as %s of %s" % (w["operation"], [w[f] for f in fields], [e[f] for f in fields], e["symbol"]))
    elsewhere = [e["symbol"] for e in seen if e.get("gpu", GPU) != GPU or ("gpu" not in e and e["class"] not in ("pinned", "registered"))]
    row(name, "operations, one event each", len(wanted), len(seen), lost)
    row(name, "events with a wrong op, class, direction, amount or result", 0, len(wrong), lost)
    row(name, "events on another or no GPU", 0, len(elsewhere), lost)
    for line in wrong[:12] + elsewhere[:12]:
        print(name, line, file=sys.stderr)


def held(seen):
    """Returns a pair for each call of cuMemGetInfo: bytes used by all processes, and bytes live in this one."""
    live, asked = {}, []
    for e in seen:
        key = (e.get("class") == "vmm", e.get("ptr"))
        if e["kind"] != "memory" or e["result"]:
            continue
        if e["op"] in ("alloc", "create") and e.get("class") not in ("pinned", "registered"):
            live[key] = e["bytes"]
        elif e["op"] in ("free", "release"):
            live.pop(key, None)
        elif e["op"] == "mem_info":
            asked.append((e["bytes"], sum(live.values())))
    return asked


def plain(name):
    return "".join(name.split()).removeprefix("void")


def framework(name, script, env=None, store=None):
    kept = store or tempfile.mkdtemp()
    truth, process, lost = watch(name, [sys.executable, os.path.join(HERE, script)], env, kept)
    if truth is None:
        return row(name, "run", 1, None, None)
    api, calls = truth["api"], process["calls"]
    ok = lambda *symbols: sum(calls.get(symbol, {"ok": 0})["ok"] for symbol in symbols)
    row(name, "kernels run, by CUPTI", truth["kernels"], sum(process["launches"].values()), lost)
    row(name, "kernel names, by CUPTI", truth["names"], len(process["launches"]), lost)
    if "by_name" in truth:
        ours, theirs = ({plain(k): n for k, n in d.items()} for d in (process["launches"], truth["by_name"]))
        for k in [k for k in ours if k not in theirs and len(k) > 900]:  # gputap cuts long names
            ours.update({full: ours.pop(k) for full in theirs if full.startswith(k)})
        other = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
        row(name, "kernels whose count differs from CUPTI's", 0, len(other), lost)
        for k in other[:8]:
            print(name, k, "CUPTI", theirs.get(k), "gputap", ours.get(k), file=sys.stderr)
    if "filled" in truth:
        asked = held(events(kept, process["pid"]))
        took = [b[1] - a[1] for j, b in enumerate(asked) for a in asked[:j] if b[0] - a[0] == truth["filled"]]
        row(name, "bytes of 79 allocations, by cuMemGetInfo", truth["filled"], took[0] if took else None, lost, 0.01)
    if not store:
        shutil.rmtree(kept)
    row(name, "launches without a name", 0, process["launches"].get("unknown", 0), lost)
    for kernel, n in truth.get("named", {}).items():
        row(name, kernel, n, process["launches"].get(kernel, 0), lost)
    row(name, "cudaMalloc, by CUPTI", api.get("cudaMalloc", 0), ok("cuMemAlloc_v2"), lost)
    row(name, "cudaMallocAsync, by CUPTI", api.get("cudaMallocAsync", 0), ok("cuMemAllocAsync"), lost)
    if script == "torch_train.py":
        row(name, "cudaMemcpyAsync, by CUPTI", api.get("cudaMemcpyAsync", 0), ok(*COPIES), lost)
        row(name, "HtoD bytes, by the script", truth["htod_bytes"] + truth["parameter_bytes"], process["copies"]["HtoD"]["bytes"], lost)
    if truth.get("pool_bytes"):
        row(name, "bytes of CuPy's pool", truth["pool_bytes"], process["peak_bytes"], lost)
    row(name, "unfreed bytes on an unknown GPU", 0, process["gpus"].get("unknown", {"live_bytes": 0})["live_bytes"], lost)
    if "reserved_peak" in truth:
        peaks[name] = (truth["reserved_peak"], process["peak_bytes"])
    print(name, json.dumps({"calls": process["calls"], "truth": {k: v for k, v in truth.items()}}), file=sys.stderr)


PROGRAMS = [
    (operations, "operations, shared cudart, legacy streams", "-cudart", "shared"),
    (operations, "operations, static cudart, per-thread streams", "-cudart", "static", "--default-stream", "per-thread"),
    (nvcc, "shared"),
    (nvcc, "static"),
    (framework, "PyTorch, default allocator", "torch_train.py"),
    (framework, "PyTorch, expandable segments", "torch_train.py", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    (framework, "PyTorch, cudaMallocAsync", "torch_train.py", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    (framework, "PyTorch, torch.compile", "torch_graph.py", {"MODE": "compile"}),
    (framework, "PyTorch, CUDA graph", "torch_graph.py", {"MODE": "graph"}),
    (framework, "Triton", "triton_program.py"),
    (framework, "CuPy", "cupy_program.py"),
    (framework, "JAX", "jax_program.py"),
]


def main():
    only = os.environ.get("ONLY", "")  # run only programs with this text in their name
    for run, *arguments in PROGRAMS:
        if only in arguments[0]:
            run(*arguments)
    if len(peaks) > 1:
        # cuBLAS allocates outside PyTorch's allocator, the same in each run. So peaks and reserved bytes differ equally.
        (reserved, seen), (base_reserved, base_seen) = peaks["PyTorch, expandable segments"], peaks["PyTorch, default allocator"]
        row("PyTorch, expandable − default", "peak bytes, by torch.cuda.memory_stats", reserved - base_reserved, seen - base_seen, 0)
    store = tempfile.mkdtemp()
    if len(sys.argv) > 1:  # record a longer run without CUPTI, and keep the recording
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
