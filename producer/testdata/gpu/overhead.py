"""Measures what gputap costs a PyTorch training step: off, memory, torch, all features, and CUPTI instead, in turns.

usage: overhead.py [TURNS]   prints the table of docs/measurements/capture.md
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GPUTAP = os.path.join(HERE, "../../../bin/gputap")
TURNS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1] != "step" else 20
MODES = {"off": None, "memory": "memory", "torch": "torch",
         "all features": "memory,launch,copy,sync", "CUPTI": None}


def step():
    """Runs a block of steps for each line of input. Prints ms per step: eager, then with a replayed CUDA graph."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    host = torch.randn(512, 1024).pin_memory()
    static = torch.randn(512, 1024, device="cuda")

    def eager():
        optimizer.zero_grad()
        model(host.to("cuda", non_blocking=True)).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        for _ in range(4):
            model(static)

    def timed(run, n):
        for _ in range(10):
            run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            run()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / n

    timed(eager, 200)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "CUPTI":
            with profile(activities=[ProfilerActivity.CUDA]):
                both = timed(eager, 150), timed(graph.replay, 300)
        else:
            both = timed(eager, 150), timed(graph.replay, 300)
        print(json.dumps(both), flush=True)


def main():
    program = subprocess.Popen([sys.executable, __file__, "step"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE)
    assert program.stdout.readline().strip() == "ready"
    took = {mode: ([], []) for mode in MODES}
    lost = 0
    for turn in range(TURNS):
        for mode in list(MODES)[turn % len(MODES):] + list(MODES)[:turn % len(MODES)]:
            tracer = None
            if MODES[mode]:
                tracer = subprocess.Popen([GPUTAP, "run", "--features", MODES[mode], "-o", "json", "--display-interval", "1h",
                                           "--metrics-addr", ""], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                time.sleep(0.7)
            program.stdin.write(mode + "\n")
            program.stdin.flush()
            eager, graph = json.loads(program.stdout.readline())
            took[mode][0].append(eager)
            took[mode][1].append(graph)
            if tracer:
                tracer.send_signal(signal.SIGINT)
                out, _ = tracer.communicate()
                lost += sum(json.loads(out.strip().splitlines()[-1])["lost"].values())
    program.stdin.close()
    print("| step | mode | median ms | 10th to 90th percentile | to off |\n| --- | --- | --- | --- | --- |")
    for i, kind in enumerate(("eager", "CUDA graph")):
        base = statistics.median(took["off"][i])
        for mode in MODES:
            times = sorted(took[mode][i])
            middle = statistics.median(times)
            print("| %s | %s | %.3f | %.3f to %.3f | %+.1f %% |" % (
                kind, mode, middle, times[len(times) // 10], times[-1 - len(times) // 10], (middle / base - 1) * 100))
    print("%d turns, %d events lost" % (TURNS, lost))


step() if sys.argv[1:] == ["step"] else main()
