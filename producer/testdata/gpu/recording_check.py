"""Records a PyTorch program and compares what gputap finds in the recording with PyTorch and nvidia-smi.

Needs bin/gputap, PyTorch and nvidia-smi, and root.
usage: recording_check.py DIR   writes the recording, the log of nvidia-smi, charts and exports into DIR and prints
                                tables; exits with status 3 when a figure differs. A recording that DIR has already is
                                compared again, which needs no GPU.
"""
import datetime
import json
import os
import pickle
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GPUTAP = os.path.join(HERE, "../../../bin/gputap")
MIB = 1 << 20


def program(directory):
    """Uses memory in six ways. It writes the moments and, at one of them, the allocator's own snapshot."""
    import torch

    moments = []

    def moment(name):
        torch.cuda.synchronize()
        time.sleep(0.5)
        free, total = torch.cuda.mem_get_info()
        moments.append({"name": name, "ns": time.time_ns(), "used": total - free,
                        "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()})
        time.sleep(0.5)

    torch.cuda.init()
    torch.ones(1, device="cuda").cpu()
    moment("context")
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(4096, 4096).pin_memory().to("cuda", non_blocking=True)).square().mean().backward()
        optimizer.step()
    moment("100 training steps")
    cache = [torch.empty((256 + 8 * i) * MIB, dtype=torch.uint8, device="cuda") for i in range(40)]
    moment("40 large tensors")
    del cache[::2]
    moment("every second dropped")
    torch.cuda.empty_cache()
    small = torch.empty(1, device="cuda")  # emptying the cache is reported with the next block
    moment("cache emptied")
    del small
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kept = [torch.empty((1 + 3 * i) * 100_000, device="cuda") for i in range(64)]
    del kept[::3]
    moment("tensors of a second CUDA stream")
    snapshot = torch.cuda.memory._snapshot()
    with open(os.path.join(directory, "torch.json"), "w") as out:
        json.dump({"segments": [{
            "address": s["address"], "bytes": s["total_size"], "stream": s["stream"],
            "blocks": [[b["address"], b["size"]] for b in s["blocks"] if b["state"] == "active_allocated"],
        } for s in snapshot["segments"]], "moments": moments, "pid": os.getpid()}, out)
    time.sleep(2)


def run(*args, allowed=(0,)):
    done = subprocess.run([GPUTAP, *args], stdout=subprocess.PIPE, text=True)
    if done.returncode not in allowed:
        sys.exit("gputap %s: status %d" % (" ".join(args), done.returncode))
    return done.stdout


def record(directory, log):
    """Records the program beside a log of nvidia-smi."""
    with open(log, "w") as out:
        smi = subprocess.Popen(["nvidia-smi", "--query-gpu=timestamp,index,memory.used", "--format=csv", "-lms", "100"],
                               stdout=out)
        time.sleep(2)
        run("run", "--record", os.path.join(directory, "run.gputap"), "-o", "json", "--display-interval", "60s", "--",
            sys.executable, __file__, "program", directory)
        time.sleep(1)
        smi.terminate()
        smi.wait()


def smi_used(log, ns):
    """Returns the bytes that nvidia-smi last reported before a time."""
    used = None
    with open(log) as lines:
        next(lines)
        for line in lines:
            fields = line.split(", ")
            if len(fields) < 3:
                continue
            at = datetime.datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
            if at * 1e9 <= ns and fields[1] == "0":
                used = int(fields[2].split()[0]) * MIB
    return used


def value_at(points, ns):
    """Returns the value of a step curve at a time."""
    bytes_ = 0
    for at, amount in points:
        if at > ns:
            break
        bytes_ = amount
    return bytes_


def compare_moments(truth, torch, usage, log):
    """Prints gputap's bytes at each moment beside PyTorch's and nvidia-smi's. Returns the number of differences."""
    differ = 0
    points = next(iter(usage["gpus"].values()))["points"]
    series = {s["name"]: s["points"] for s in next(iter(torch["gpus"].values()))["series"]}
    first = truth["moments"][0]
    base_smi, base = smi_used(log, first["ns"]), value_at(points, first["ns"])
    print("| moment | allocated | gputap | reserved | gputap | since the context: nvidia-smi | by gputap | |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for m in truth["moments"]:
        allocated = value_at(series["tensors"], m["ns"])
        reserved = allocated + value_at(series["cached"], m["ns"])
        mine = value_at(points, m["ns"]) - base
        smi = smi_used(log, m["ns"]) - base_smi
        off = abs(mine - smi) / smi if smi > 1024 * MIB else 0
        ok = allocated == m["allocated"] and reserved == m["reserved"] and off <= 0.02
        differ += not ok
        print("| %s | %d | %d | %d | %d | %d | %d | %s%.2f %% |" % (
            m["name"], m["allocated"], allocated, m["reserved"], reserved, smi, mine, "" if ok else "differs: ", 100 * off))
    return differ


def compare_snapshot(truth, directory):
    """Compares the exported snapshot with that of PyTorch. Returns the number of differences."""
    until = truth["moments"][-1]["ns"] + 10 ** 9
    at = datetime.datetime.fromtimestamp(until // 10 ** 9, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    path = os.path.join(directory, "snapshot.pickle")
    run("export", "memory-viz", os.path.join(directory, "run.gputap"), "--until", at, "--pid", str(truth["pid"]), "-o",
        path, allowed=(0, 4))
    with open(path, "rb") as file:
        mine = pickle.load(file)["segments"]
    ours = {(s["address"], s["total_size"]): s for s in mine}
    theirs = {(s["address"], s["bytes"]): s for s in truth["segments"]}
    blocks = {(b["address"], b["size"]) for s in mine for b in s["blocks"] if b["state"] == "active_allocated"}
    their_blocks = {tuple(b) for s in truth["segments"] for b in s["blocks"]}
    streams = sum(ours[k].get("stream") == theirs[k]["stream"] for k in ours.keys() & theirs.keys())
    print("\n| snapshot | PyTorch | gputap | in both |\n| --- | ---: | ---: | ---: |")
    print("| segments, by address and size | %d | %d | %d |" % (len(theirs), len(ours), len(ours.keys() & theirs.keys())))
    print("| blocks, by address and size | %d | %d | %d |" % (len(their_blocks), len(blocks), len(blocks & their_blocks)))
    print("| segments whose CUDA stream is equal | | | %d |" % streams)
    others = [s for k, s in ours.items() if k not in theirs]
    print("| segments of gputap alone, without a block of PyTorch | | %d | |" % sum(not any(
        b["state"] == "active_allocated" for b in s["blocks"]) for s in others))
    return len(theirs.keys() - ours.keys()) + (blocks != their_blocks)


def main(directory):
    os.makedirs(directory, exist_ok=True)
    log, recording = os.path.join(directory, "smi.csv"), os.path.join(directory, "run.gputap")
    if not os.path.exists(recording):
        record(directory, log)
    with open(os.path.join(directory, "torch.json")) as file:
        truth = json.load(file)
    pid = ["--pid", str(truth["pid"])]
    usage, torch = (json.loads(run("analyze", "usage", recording, "-o", "json", "--by", by, *pid))["processes"][0]
                    for by in ("gpu", "torch"))
    differ = compare_moments(truth, torch, usage, log) + compare_snapshot(truth, directory)
    print("\n" + run("analyze", "watermark", recording, *pid))
    run("plot", "usage", recording, "--smi", log, "-o", os.path.join(directory, "usage.png"), *pid)
    run("plot", "usage", recording, "--by", "torch", "--smi", log, "-o", os.path.join(directory, "torch.png"), *pid)
    run("plot", "bandwidth", recording, "-o", os.path.join(directory, "copies.png"))
    run("export", "perfetto", recording, "-o", os.path.join(directory, "trace.pftrace"))
    run("export", "pprof", recording, "-o", os.path.join(directory, "memory.pprof"))
    print("%d figures differ" % differ)
    sys.exit(3 if differ else 0)


if __name__ == "__main__":
    if sys.argv[1] == "program":
        program(sys.argv[2])
    else:
        main(sys.argv[1])
