#!/usr/bin/env python3
"""Print a gputap batch, one event a line: read_batch.py FILE. Needs msgpack; docs/columns.md explains the keys."""
import sys

# Generated from schema.Columns and schema.Dictionaries by: go test ./schema -update
COLUMNS = {
    "memory": "t d th c g r p b x cx po st",
    "launch": "t th g s q",
    "copy": "t d th c g r b dst src q hm",
    "sync": "t d th c g r p x q v",
    "tensor": "t th c g p b al re",
    "host": "",
    "rank": "t d th b fr to no",
}
ROWS = {
    "procs": {"pid": 0, "start": 0, "uid": 0, "comm": "", "exe": "", "container": "", "late": 0, "user": "",
            "nspid": 0, "cgroup": "", "pod": "", "unit": "", "job": "", "rank": 0, "ranks": 0},
    "threads": {"process": 0, "tid": 0, "comm": ""},
    "gpus": {"uuid": "", "ordinal": 0, "inferred": 0, "model": "", "bus": "", "bytes": 0},
    "calls": {"symbol": "", "op": "", "class": "", "direction": ""},
    "funcs": {"name": "", "handle": 0, "read": 0},
    "shapes": {"call": 0, "func": 0, "grid_x": 0, "grid_y": 0, "grid_z": 0, "block_x": 0, "block_y": 0,
            "block_z": 0, "shared_bytes": 0},
    "graphs": {"func": 0, "partial": 0, "nodes": []},
    "ctxs": {"handle": 0, "gpu": 0},
    "libs": {"path": "", "inode": 0, "attached": 0, "stepped": 0, "absent": [], "failed": []},
    "cover": {"process": 0, "asked": 0, "outside": [], "tables": 0},
    "ends": {"kind": "", "seq": 0, "through": 0},
    "stacks": {"frames": [], "name": ""},
}
# end of the generated tables

# A reader must expect words that it does not know. These are the ops of form 1.0.
OPS = """alloc free create retain release reserve unreserve map unmap access map_array bind unbind export open close
    prefetch pool_create pool_destroy pool_trim pool_info mem_info context_create context_destroy context_retain
    context_release context_reset module_load module_unload exec exit launch graph_launch graph_upload host_func record
    copy copy_async set set_async copied copied_behind sync query event_record wait_event elapsed stream_create stream_destroy
    resume
    block_alloc block_free""".split()


def column(n, base=0, width=0, data=b""):
    """Returns a column as n integers. With numpy: base + numpy.frombuffer(data, f"<u{width}")."""
    return [base + int.from_bytes(data[i * width:(i + 1) * width], "little") for i in range(n)]


def rows(b, key):
    """Returns rows by field name. Fields of a newer minor version are dropped, absent fields read as 0 or ""."""
    zero = ROWS[key]
    return [dict(zip(zero, row + list(zero.values())[len(row):])) for row in b.get(key, [])]


def tables(b):
    """Returns for each index column the values that its indices stand for."""
    processes, funcs, calls = rows(b, "procs"), rows(b, "funcs"), rows(b, "calls")
    for call in calls:
        call["op"] = call["op"] if call["op"] in OPS else "unknown"
    gpus = [{"uuid": ""}] + rows(b, "gpus")  # 0 is "unknown", in contexts too
    return {
        "th": [{**processes[t["process"]], "tid": t["tid"], "thread": t["comm"]} for t in rows(b, "threads")],
        "c": calls,
        "g": gpus,
        "cx": [{}] + [{"handle": c["handle"], **gpus[c["gpu"]]} for c in rows(b, "ctxs")],
        "s": [{**calls[s.pop("call")], **funcs[s.pop("func")], **s} for s in rows(b, "shapes")],
        "q": [{"handle": handle} for handle in b.get("streams", [])],
        "st": [{}] + rows(b, "stacks"),
    }


def events(b):
    """Yields each event: column key to number, or for an index to the fields of the entry that it points to."""
    known, keys = tables(b), COLUMNS.get(b["k"], "").split()
    columns = [column(b.get("n", 0), *b.get("cols", {}).get(key, [])) for key in keys]
    for values in zip(*columns):
        yield {key: known[key][v] if key in known else v for key, v in zip(keys, values)}


def text(value):
    """Returns a number as it is, and a list or the fields of an entry separated by commas."""
    if isinstance(value, dict):
        value = list(value.values())
    return ",".join(map(text, value)) if isinstance(value, list) else str(value)


def dictionaries(b):
    """Yields what belongs to the whole batch: older processes, a heartbeat's parts, and what each graph runs."""
    if "older" in b:
        yield "older " + text(b["older"])
    processes, funcs = rows(b, "procs"), rows(b, "funcs")
    if b["k"] == "host":
        yield f"linux={b.get('linux', '')} prod={b.get('prod', '')}"
        yield from ("gpu " + text(gpu) for gpu in rows(b, "gpus"))
    if b["k"] == "rank":
        yield f"on={b.get('on', '')}"
    for library in rows(b, "libs"):
        yield " ".join(["lib", library.pop("path"), *(f"{name}={text(v)}" for name, v in library.items())])
    for c in rows(b, "cover"):
        yield " ".join(["cover", text(processes[c.pop("process")]), *(f"{name}={text(v)}" for name, v in c.items())])
    for e in rows(b, "ends"):
        yield " ".join(["end", e.pop("kind"), *(f"{name}={v}" for name, v in e.items())])
    for g in rows(b, "graphs"):
        runs = [f"{text(funcs[f])}*{count}" for f, count in zip(g["nodes"][::2], g["nodes"][1::2])]
        yield " ".join([f"graph {text(funcs[g['func']])} partial={g['partial']}", *runs])


def main(path):
    import msgpack  # follow.py has a decoder of its own

    with open(path, "rb") as f:  # names in Linux are bytes, and not always UTF-8
        b = msgpack.unpackb(f.read(), unicode_errors="surrogateescape")
    b["k"] = b["k"] if b["k"] in COLUMNS else ""  # a kind of a newer producer
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    print(*(f"{key}={b.get(key, 0)}" for key in "v k cl h boot run seq n off t0 t1".split()))
    print("lost", *(f"{cause}={n}" for cause, n in b.get("lost", {}).items()))
    for line in dictionaries(b):
        print(line)
    for event in events(b):
        print(*(f"{key}={text(value)}" for key, value in event.items()))


if __name__ == "__main__":
    main(sys.argv[1])
