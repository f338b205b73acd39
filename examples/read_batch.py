#!/usr/bin/env python3
"""Print a gputap batch, one event a line: read_batch.py FILE. Needs msgpack; docs/wire.md explains the keys."""
import sys

import msgpack

COLUMNS = {"memory": "t d th c g r p b x", "launch": "t th g s q", "copy": "t d th c g r b dst src q",
           "sync": "t d th c g r q", "host": ""}
OPS = "alloc free create release map unmap exec exit launch graph_launch copy copy_async sync".split()


def column(n, base=0, width=0, data=b""):
    """One column as n integers. With numpy: base + numpy.frombuffer(data, f"<u{width}")."""
    return [base + int.from_bytes(data[i * width:(i + 1) * width], "little") for i in range(n)]


def table(b, key, *zero):
    """A dictionary: fields of newer producers are cut off, fields of older ones are filled in."""
    return [row[:len(zero)] + list(zero[len(row):]) for row in b.get(key, [])]


def events(b):
    procs = table(b, "procs", 0, 0, 0, "", "", "", 0)
    calls = [[symbol, op if op in OPS else "unknown", *words] for symbol, op, *words in table(b, "calls", "", "", "", "")]
    funcs = table(b, "funcs", "", 0)
    lookup = {  # what an index stands for; index 0 of g is "unknown GPU"
        "th": [procs[p] + thread for p, *thread in table(b, "threads", 0, 0, "")],
        "c": calls,
        "g": [["", ""]] + table(b, "gpus", "", 0),
        "s": [calls[c] + funcs[f] + rest for c, f, *rest in table(b, "shapes", *[0] * 9)],
        "q": [[handle] for handle in b.get("streams", [])],
    }
    keys = COLUMNS[b["k"]].split()
    columns = [column(b.get("n", 0), *b.get("cols", {}).get(key, [])) for key in keys]
    for event in zip(*columns):
        yield " ".join(f"{key}=" + ",".join(map(str, lookup[key][v] if key in lookup else [v])) for key, v in zip(keys, event))


def main(path):
    with open(path, "rb") as f:  # names in Linux are bytes, and not always UTF-8
        b = msgpack.unpackb(f.read(), unicode_errors="surrogateescape")
    b["k"] = b["k"] if b["k"] in COLUMNS else ""  # a kind of a newer producer
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    print(*(f"{key}={b.get(key, 0)}" for key in "v k cl h boot run seq n off t0 t1".split()))
    print("lost", *(f"{cause}={n}" for cause, n in b.get("lost", {}).items()))
    for lib in b.get("libs", []):
        print("lib", *lib[:4], *lib[4])
    for line in events(b) if b["k"] else ():
        print(line)


if __name__ == "__main__":
    main(sys.argv[1])
