#!/usr/bin/env python3
"""Print a gputap batch, one event a line: read_batch.py FILE. Needs msgpack; docs/wire.md explains the keys."""
import sys

COLUMNS = {"memory": "t d th c g r p b x cx po", "launch": "t th g s q", "copy": "t d th c g r b dst src q",
           "sync": "t d th c g r p x q v", "host": ""}
OPS = """alloc free create retain release reserve unreserve map unmap access map_array bind unbind export open close prefetch
    pool_create pool_destroy pool_trim pool_info mem_info context_create context_destroy context_retain context_release
    context_reset module_load module_unload exec exit launch graph_launch graph_upload host_func record copy copy_async set
    set_async sync query event_record wait_event elapsed stream_create stream_destroy""".split()
PROCESS, GPU, FUNC = (0, 0, 0, "", "", "", 0, "", 0, "", "", ""), ("", 0, 0, "", ""), ("", 0, 0)


def column(n, base=0, width=0, data=b""):
    """One column as n integers. With numpy: base + numpy.frombuffer(data, f"<u{width}")."""
    return [base + int.from_bytes(data[i * width:(i + 1) * width], "little") for i in range(n)]


def table(b, key, *zero):
    """A dictionary: fields of newer producers are cut off, fields of older ones are filled in."""
    return [row[:len(zero)] + list(zero[len(row):]) for row in b.get(key, [])]


def text(values):
    return ",".join(map(str, values))


def events(b):
    procs, funcs = table(b, "procs", *PROCESS), table(b, "funcs", *FUNC)
    calls = [[symbol, op if op in OPS else "unknown", *words] for symbol, op, *words in table(b, "calls", "", "", "", "")]
    gpus = [[""]] + table(b, "gpus", *GPU)  # 0 is "unknown", and for contexts too
    lookup = {  # what an index stands for
        "th": [procs[p] + thread for p, *thread in table(b, "threads", 0, 0, "")],
        "c": calls,
        "g": gpus,
        "cx": [[""]] + [[handle] + gpus[g] for handle, g in table(b, "ctxs", 0, 0)],
        "s": [calls[c] + funcs[f] + rest for c, f, *rest in table(b, "shapes", *[0] * 9)],
        "q": [[handle] for handle in b.get("streams", [])],
    }
    keys = COLUMNS[b["k"]].split()
    columns = [column(b.get("n", 0), *b.get("cols", {}).get(key, [])) for key in keys]
    for event in zip(*columns):
        yield " ".join(f"{key}=" + text(lookup[key][v] if key in lookup else [v]) for key, v in zip(keys, event))


def dictionaries(b):
    """What belongs to the whole batch: who is still there, a heartbeat's parts, and what each graph runs."""
    if "older" in b:
        yield "older " + text(b["older"])
    procs, funcs = table(b, "procs", *PROCESS), table(b, "funcs", *FUNC)
    if b["k"] == "host":
        yield f"linux={b.get('linux', '')} prod={b.get('prod', '')}"
        yield from ("gpu " + text(gpu) for gpu in table(b, "gpus", *GPU))
    for path, inode, attached, stepped, absent, failed in table(b, "libs", "", 0, 0, 0, [], []):
        yield f"lib {path} {inode=} {attached=} {stepped=} absent={text(absent)} failed={text(failed)}"
    for p, asked, outside, tables in table(b, "cover", 0, 0, [], 0):
        yield f"cover {text(procs[p])} {asked=} outside={text(outside)} {tables=}"
    for f, partial, nodes in table(b, "graphs", 0, 0, []):
        runs = [f"{text(funcs[node])}*{count}" for node, count in zip(nodes[::2], nodes[1::2])]
        yield " ".join([f"graph {text(funcs[f])} {partial=}", *runs])


def main(path):
    import msgpack  # follow.py has its own

    with open(path, "rb") as f:  # names in Linux are bytes, and not always UTF-8
        b = msgpack.unpackb(f.read(), unicode_errors="surrogateescape")
    b["k"] = b["k"] if b["k"] in COLUMNS else ""  # a kind of a newer producer
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    print(*(f"{key}={b.get(key, 0)}" for key in "v k cl h boot run seq n off t0 t1".split()))
    print("lost", *(f"{cause}={n}" for cause, n in b.get("lost", {}).items()))
    for line in dictionaries(b):
        print(line)
    for line in events(b) if b["k"] else ():
        print(line)


if __name__ == "__main__":
    main(sys.argv[1])
