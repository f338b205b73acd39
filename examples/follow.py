#!/usr/bin/env python3
"""Print the events of a fleet, one a line, with wall time and named values. Needs Python 3.8 and nothing else.

    follow.py --server nats://bus:4222 --kind memory         events that are published from now on
    follow.py --server nats://bus:4222 --stream GPUTAP_EV_000 --name me
                                                             events that the JetStream stream stores, then new ones
    follow.py --server nats://bus:4222 --json                one JSON object an event
    follow.py --server nats://bus:4222 --host gpu-07 --save gpu-07.batches
                                                             record a host until Ctrl-C, for gputap simulate --profile

User and password or a token are read from the URL, or from NATS_USER and NATS_PASSWORD or NATS_TOKEN, which no list of
processes shows. NATS_URL is the default of --server. gputap run --nats-listen writes a file with these variables."""
import argparse
import json
import os
import socket
import ssl
import struct
import sys
import time
import uuid
from urllib.parse import unquote, urlsplit

import read_batch

FIXED = {0xc0: None, 0xc2: False, 0xc3: True}
NUMBERS = dict(zip(range(0xca, 0xd4), "fdBHIQbhiq"))
SIZED = dict(zip((0xc4, 0xc5, 0xc6, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf),
                 ("bB", "bH", "bI", "sB", "sH", "sI", "aH", "aI", "mH", "mI")))
SECOND = 10**9  # of JetStream's durations
MOST_EVENTS = 1 << 17


def unpack(data, at=0):
    """Returns one msgpack value and the offset of its end. gputap writes no extension types."""
    def take(form):
        nonlocal at
        (value,), at = struct.unpack_from(">" + form, data, at), at + struct.calcsize(form)
        return value

    tag = take("B")
    if tag < 0x80 or tag >= 0xe0:
        return (tag if tag < 0x80 else tag - 0x100), at
    if tag in FIXED or tag in NUMBERS:
        return (FIXED[tag] if tag in FIXED else take(NUMBERS[tag])), at
    if tag < 0xc0:
        what, n = ("m", tag & 15) if tag < 0x90 else ("a", tag & 15) if tag < 0xa0 else ("s", tag & 31)
    elif tag in SIZED:
        what, n = SIZED[tag][0], take(SIZED[tag][1])
    else:
        raise ValueError(f"msgpack type {tag:#x}")
    if n > len(data) - at:  # an element has at least one byte
        raise ValueError("the message is cut off")
    if what == "b":
        return data[at:at + n], at + n
    if what == "s":
        return data[at:at + n].decode("utf-8", "surrogateescape"), at + n
    values = []
    for _ in range(n * 2 if what == "m" else n):
        value, at = unpack(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2])) if what == "m" else values), at


class Bus:
    """A connection to NATS. It does not reconnect."""

    def __init__(self, url, ca=None, cert=None, key=None):
        u = urlsplit(url if "://" in url else "nats://" + url)
        sock = socket.create_connection((u.hostname, u.port or 4222))
        self.file = sock.makefile("rwb")
        info = json.loads(self.file.readline().split(b" ", 1)[1])
        if info.get("tls_required") or u.scheme == "tls" or ca or cert:
            tls = ssl.create_default_context(cafile=ca)
            if cert:
                tls.load_cert_chain(cert, key)
            self.file = tls.wrap_socket(sock, server_hostname=u.hostname).makefile("rwb")
        secrets = {"user": "NATS_USER", "pass": "NATS_PASSWORD", "auth_token": "NATS_TOKEN"}
        who = {key: os.environ[name] for key, name in secrets.items() if os.environ.get(name)}
        if u.username:
            user = unquote(u.username)
            who = {"user": user, "pass": unquote(u.password)} if u.password else {"auth_token": user}
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, **who}
        self.send("CONNECT " + json.dumps(options))

    def send(self, *lines):
        self.file.write("".join(line + "\r\n" for line in lines).encode())
        self.file.flush()

    def request(self, subject, body, reply):
        self.send(f"PUB {subject} {reply} {len(json.dumps(body))}", json.dumps(body))

    def line(self):
        line = self.file.readline().decode().rstrip("\r\n")
        if not line or line.startswith("-ERR"):
            raise ConnectionError(line or "the server ended the connection")
        if line == "PING":
            self.send("PONG")
        return line

    def messages(self):
        """Yields subject, reply, status line and payload of each message, without end."""
        while True:
            verb, *words = self.line().split(" ")
            if verb == "PONG":
                print("following", file=sys.stderr, flush=True)
            if verb not in ("MSG", "HMSG"):
                continue
            total, head = int(words[-1]), int(words[-2]) if verb == "HMSG" else 0
            raw = self.file.read(total + 2)[:-2]
            reply = words[2] if len(words) > (4 if head else 3) else ""
            yield words[0], reply, raw[:head].split(b"\r\n")[0].decode(), raw[head:]


def live(bus, subject):
    """Yields subject and data of each message that is published from now on."""
    bus.send(f"SUB {subject} 1", "PING")
    for subject, _, _, data in bus.messages():
        yield subject, data


def stored(bus, stream, name, subject, inbox):
    """Yields subject and data of stored messages. It pulls, so a slow reader is never sent more than it asked for."""
    bus.send(f"SUB {inbox}.* 1", "PING")
    config = {"name": name, "filter_subject": subject, "ack_policy": "none", "inactive_threshold": 60 * SECOND}
    create = f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{subject}"
    bus.request(create, {"stream_name": stream, "config": config}, inbox + ".made")
    left = 0
    for subject, reply, status, data in bus.messages():
        if subject == inbox + ".made" and (status or "error" in json.loads(data)):
            reason = status or json.loads(data)["error"]["description"]
            raise ConnectionError(f"create a consumer of {stream}: {reason}")
        if status and "100" not in status:
            left = 0  # 404, 408: the server will send no more for this request
        elif reply.startswith("$JS.ACK."):
            yield subject, data
            left -= 1
        if left <= 0:
            left = 256
            pull = {"batch": left, "expires": 30 * SECOND}
            bus.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", pull, inbox + ".next")


def wall(ns):
    """Returns Unix time in ns as RFC 3339 with ns."""
    seconds, rest = divmod(ns, SECOND)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09}Z"


def as_json(b, event):
    """Returns an event as one JSON object; index columns become objects. docs/columns.md explains the keys."""
    head = {"time": wall(event["t"] + b.get("off", 0)), "cluster": b["cl"], "host": b["h"], "kind": b["k"]}
    return json.dumps({**head, **event})


def as_text(b, event):
    """Returns an event as time, cluster, host, op, function and the named values that are set."""
    if b["k"] == "rank":  # it has no calls
        return as_json(b, event)
    call, thread = event.get("c") or event["s"], event["th"]
    values = {name: thread[name] for name in ("pid", "comm", "user", "pod")}
    values["container"] = thread["container"][:12]
    values["gpu"] = event["g"].get("uuid") or (f"ordinal {event['g']['ordinal']}" if "ordinal" in event["g"] else "")
    if "s" in event:
        values["kernel"] = call["name"]
        values["grid"] = "x".join(str(call["grid_" + axis]) for axis in "xyz")
        values["block"] = "x".join(str(call["block_" + axis]) for axis in "xyz")
    for name, key in (("address", "p"), ("dst", "dst"), ("src", "src"), ("aux", "x"), ("pool", "po")):
        values[name] = hex(event[key]) if event.get(key) else ""
    values["stream"] = hex(event["q"]["handle"]) if "q" in event else ""
    values.update(direction=call["direction"], bytes=event.get("b"), result=event.get("r"))
    values.update(duration_ns=event.get("d"), elapsed_ns=event.get("v"))
    named = (f"{name}={str(v).replace(' ', '_')}" for name, v in values.items() if v)
    return " ".join([wall(event["t"] + b.get("off", 0)), b["cl"], b["h"], call["op"], call["symbol"], *named])


def show(subject, data, form):
    """Prints the events of a message. What is no batch is reported, and the next one is read."""
    try:
        b, _ = unpack(data)
        if not 0 <= b.get("n", 0) <= MOST_EVENTS:
            raise ValueError("more events than a batch has")
        for event in read_batch.events(b):
            print(form(b, event), flush=True)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error, RecursionError, OverflowError) as e:
        print(f"{subject}: no batch: {e}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), help="URL of NATS")
    parser.add_argument("--ca", help="file with the certificate authority of the server")
    parser.add_argument("--cert", help="file with the certificate of this client, if the server checks it")
    parser.add_argument("--key", help="file with the key of that certificate (default: the certificate's file)")
    parser.add_argument("--cluster", default="*", help="follow this cluster (default: all)")
    parser.add_argument("--host", default="*",
                        help="follow this host; write dots of its name as underscores (default: all)")
    parser.add_argument("--kind",
                        help="memory, launch, copy, sync, tensor or host; * for all (default: memory; with --save: *)")
    parser.add_argument("--stream", help="read this JetStream stream from its beginning")
    parser.add_argument("--name", default="follow-" + uuid.uuid4().hex[:8],
                        help="name of the JetStream consumer, where permissions require one")
    parser.add_argument("--batches", type=int, default=0, help="end after this number of batches (default: never)")
    parser.add_argument("--json", action="store_true", help="print one JSON object an event")
    parser.add_argument("--save", metavar="FILE",
                        help="write the batches to this new file and print nothing; each has its length before it")
    o = parser.parse_args()
    for option in ("cluster", "host", "kind", "stream", "name"):
        value = getattr(o, option)
        if value is not None and (value == "" or set(value) & set(" \t\r\n.>")):
            parser.error(f"argument --{option}: {value!r}: use the form of subjects, without spaces and dots")
    kind = o.kind or ("*" if o.save else "memory")
    bus, subject = Bus(o.server, o.ca, o.cert, o.key), f"gputap.v1.ev.*.{o.cluster}.{o.host}.{kind}"
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    batches = stored(bus, o.stream, o.name, subject, "_INBOX." + o.name) if o.stream else live(bus, subject)
    with open(o.save or os.devnull, "xb" if o.save else "wb") as file:
        for n, (subject, data) in enumerate(batches, 1):
            if o.save:
                file.write(struct.pack("<I", len(data)) + data)
            else:
                show(subject, data, as_json if o.json else as_text)
            if n == o.batches:
                return


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyboardInterrupt) as e:
        sys.exit(f"follow.py: {e}" if str(e) else 130)
