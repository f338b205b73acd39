"""Compares what gputap shows of PyTorch's allocator with torch.cuda.memory_stats() at five moments of a program.

Needs bin/gputap and PyTorch, and root. Prints a table. Exits with status 3 when a figure differs.
"""
import datetime
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GPUTAP = os.path.join(HERE, "../../../bin/gputap")
FOLDED = 1.0  # seconds after which gputap has folded all that happened
KEYS = {  # of gputap: of torch.cuda.memory_stats()
    "allocated_bytes": "allocated_bytes.all.current", "reserved_bytes": "reserved_bytes.all.current",
    "peak_allocated_bytes": "allocated_bytes.all.peak", "peak_reserved_bytes": "reserved_bytes.all.peak",
    "blocks": "allocation.all.current",
}


def program():
    """Allocates in five ways. After each it prints the allocator's own figures and waits for a line."""
    import torch

    def moment(name):
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        print(json.dumps({"moment": name, "pid": os.getpid(), **{k: stats[v] for k, v in KEYS.items()}}), flush=True)
        sys.stdin.readline()

    kept = [torch.empty(n * 1000, device="cuda") for n in range(1, 200)]
    moment("199 tensors kept")
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(512, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
    moment("30 training steps")
    del kept[::2]
    moment("every second tensor dropped")
    large = [torch.empty((64 + i) << 20, dtype=torch.uint8, device="cuda") for i in range(20)]
    del large[1::2]
    moment("10 large tensors of 20 left")
    del large
    torch.cuda.empty_cache()
    kept.append(torch.empty(1, device="cuda"))  # emptying the cache is reported with the next block
    moment("cache emptied")


def shown(gputap, pid):
    """Returns gputap's figures of a process from the first line that was made late enough, and the lost events."""
    late = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=FOLDED)
    for text in gputap.stdout:
        line = json.loads(text)
        if line["time"][:23] < late.isoformat()[:23]:
            continue
        found = [p for p in line["processes"] if p["pid"] == pid]
        gpus = list(found[0]["torch"].values()) if found else []
        return gpus[0] if len(gpus) == 1 else {}, sum(line["lost"].values())
    return {}, 0


def main():
    gputap = subprocess.Popen([GPUTAP, "run", "--features", "memory,torch", "-o", "json", "--display-interval", "200ms",
                               "--metrics-addr", ""], stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    child = subprocess.Popen([sys.executable, __file__, "program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    differ = moments = 0
    print("| moment | figure | memory_stats | gputap | |\n| --- | --- | --- | --- | --- |")
    for text in child.stdout:
        truth = json.loads(text)
        seen, lost = shown(gputap, truth["pid"])
        moments += 1
        for key in KEYS:
            ok = seen.get(key) == truth[key] and lost == 0
            differ += not ok
            print("| %s | %s | %d | %s | %s |" % (truth["moment"], key, truth[key], seen.get(key), "" if ok else "differs"))
        child.stdin.write("\n")
        child.stdin.flush()
    child.wait()
    gputap.send_signal(signal.SIGINT)
    gputap.communicate()
    print("%d moments, %d figures differ" % (moments, differ))
    sys.exit(3 if differ or moments != 5 or child.returncode else 0)


program() if sys.argv[1:] == ["program"] else main()
