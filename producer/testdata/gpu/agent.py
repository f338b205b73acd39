#!/usr/bin/env python3
"""Measures what the host agent costs under steady loads, and prints a table.

Needs bin/ and a static nats-server in bin/tools, but no Go. The stub library makes the load, so no GPU is used.
"""
import os, pathlib, subprocess, tempfile, time, urllib.request

BUS, METRICS = "nats://127.0.0.1:24222", "127.0.0.1:29401"
LOADS = [
    ("idle", 10, None),
    ("4,000 memory events/s", 20, ["rate", "--rate", "4000"]),
    ("50,000 memory events/s", 15, ["rate", "--rate", "50000"]),
    ("500,000 launches/s", 10, ["rate", "--launches", "--rate", "500000"]),
    ("1,000 processes, 4 memory events/s each", 15, ["crowd", "--count", "1000", "--rate", "4"]),
]


def threads_ran(pid):
    """Returns the CPU time of all threads in ns, and how often they were scheduled."""
    ns = turns = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        ran, _, n = (task / "schedstat").read_text().split()
        ns, turns = ns + int(ran), turns + int(n)
    return ns, turns


def resident(pid):
    """Returns resident memory in MiB, and the part of it that is rings."""
    rss = rings = 0
    ring = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            ring = "bpf" in line
        elif first == "Rss:":
            rss += int(line.split()[1])
            rings += int(line.split()[1]) * ring
    return rss >> 10, rings >> 10


def counters(name):
    page = urllib.request.urlopen(f"http://{METRICS}/metrics").read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name + "{") or line.startswith(name + " "))


def measure(what, seconds, load):
    agent = subprocess.Popen(["bin/gputap-producer", "--nats.url", BUS, "--metrics.addr", METRICS, "--log.level", "error",
                              "--library", "bin/stub/libcuda.so.1"])
    time.sleep(2)
    program = load and subprocess.Popen(["bin/workload", *load, "--seconds", str(seconds + 4)], stdout=subprocess.DEVNULL)
    time.sleep(2)
    if agent.poll() is not None:
        raise SystemExit("gputap-producer ended: see above")
    ns, turns = threads_ran(agent.pid)
    time.sleep(seconds)
    after_ns, after_turns = threads_ran(agent.pid)
    rss, rings = resident(agent.pid)
    if program:
        program.wait()
        time.sleep(1)
    seen, lost = counters("gputap_producer_events_total"), counters("gputap_producer_events_lost_total")
    agent.terminate()
    agent.wait()
    print(f"| {what} | {(after_ns - ns) / seconds / 1e7:.2f} % | {(after_turns - turns) / seconds:.0f} | {rss - rings} | {rings} "
          f"| {seen:.0f} | {lost:.0f} |", flush=True)


def main():
    os.environ["LD_LIBRARY_PATH"] = os.path.abspath("bin/stub")
    with tempfile.TemporaryDirectory() as store:
        bus = subprocess.Popen(["bin/tools/nats-server", "-js", "-a", "127.0.0.1", "-p", "24222", "-sd", store, "-l", store + "/log"])
        try:
            time.sleep(1)
            subprocess.run(["bin/gputap", "stream", "init", "--nats.url", BUS], check=True, stdout=subprocess.DEVNULL)
            print("| load | CPU of a core | turns on a CPU, per s | MiB resident, without rings | rings | events seen | lost |")
            print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
            for load in LOADS:
                measure(*load)
        finally:
            bus.terminate()
            bus.wait()


if __name__ == "__main__":
    main()
