#!/usr/bin/env python3
"""Follow the events of a fleet, one a line. Needs Python 3.8 and nothing else.

    follow.py --server nats://bus:4222 --kind memory                      live: what is published from now on
    follow.py --server nats://bus:4222 --stream GPUTAP_EV_000 --name me   stored: all that JetStream keeps, then live
    follow.py --server nats://bus:4222 --host gpu-07 --save gpu-07.batches    all kinds of one host, until Ctrl-C, for gputap simulate --profile

User and password, or a token, are taken from the URL, or from NATS_USER and NATS_PASSWORD, or NATS_TOKEN, where nobody
sees them in a list of processes; NATS_URL is the default of --server. gputap run --nats-listen writes a file of these."""
import argparse
import json
import os
import socket
import ssl
import struct
import sys
import uuid
from urllib.parse import unquote, urlsplit

import read_batch

FIXED = {0xc0: None, 0xc2: False, 0xc3: True}
NUMBERS = dict(zip(range(0xca, 0xd4), "fdBHIQbhiq"))
SIZED = dict(zip((0xc4, 0xc5, 0xc6, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf), ("bB", "bH", "bI", "sB", "sH", "sI", "aH", "aI", "mH", "mI")))
SECOND = 10**9  # of JetStream's durations
MOST_EVENTS = 1 << 17


def unpack(data, at=0):
    """One msgpack value and where it ends. Extension types are none of gputap's."""
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
    if n > len(data) - at:  # each element has a byte at least
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
    """A connection to NATS: what the protocol needs, and no reconnect."""

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
            who = {"user": unquote(u.username), "pass": unquote(u.password)} if u.password else {"auth_token": unquote(u.username)}
        self.send("CONNECT " + json.dumps({"verbose": False, "pedantic": False, "headers": True, "no_responders": True, **who}))

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
        """Subject, reply, status line and payload of what comes, for ever."""
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
    bus.send(f"SUB {subject} 1", "PING")
    for subject, _, _, data in bus.messages():
        yield subject, data


def stored(bus, stream, name, subject, inbox):
    """Pulls: the server sends no more than was asked for, however slow we are."""
    bus.send(f"SUB {inbox}.* 1", "PING")
    config = {"name": name, "filter_subject": subject, "ack_policy": "none", "inactive_threshold": 60 * SECOND}
    bus.request(f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{subject}", {"stream_name": stream, "config": config}, inbox + ".made")
    left = 0
    for subject, reply, status, data in bus.messages():
        if subject == inbox + ".made" and (status or "error" in json.loads(data)):
            raise ConnectionError(f"no consumer of {stream}: {status or json.loads(data)['error']['description']}")
        if status and "100" not in status:
            left = 0  # 404, 408: what was asked for has come to its end
        elif reply.startswith("$JS.ACK."):
            yield subject, data
            left -= 1
        if left <= 0:
            left = 256
            bus.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", {"batch": left, "expires": 30 * SECOND}, inbox + ".next")


def show(subject, data):
    try:
        b, _ = unpack(data)
        if not 0 <= b.get("n", 0) <= MOST_EVENTS:
            raise ValueError("more events than a batch has")
        for line in read_batch.events(b):
            print(b["cl"], b["h"], line, flush=True)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error, RecursionError) as e:
        print(f"{subject}: no batch: {e}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    parser.add_argument("--ca", help="certificate authority of the server")
    parser.add_argument("--cert", help="certificate of this client, where the server checks it")
    parser.add_argument("--key", help="key of that certificate (default: it is in the same file)")
    parser.add_argument("--cluster", default="*")
    parser.add_argument("--host", default="*", help="as subjects name it: dots are underscores")
    parser.add_argument("--kind", help="memory, launch, copy, sync, host, or * for all (default: memory; to save: all)")
    parser.add_argument("--stream", help="read this JetStream stream from its beginning")
    parser.add_argument("--name", default="follow-" + uuid.uuid4().hex[:8], help="of the JetStream consumer, where permissions name one")
    parser.add_argument("--batches", type=int, default=0, help="end after so many")
    parser.add_argument("--save", metavar="FILE", help="write the batches to this new file, each with its length before it, and no lines")
    o = parser.parse_args()
    for option in ("cluster", "host", "kind", "stream", "name"):
        value = getattr(o, option)
        if value is not None and (value == "" or set(value) & set(" \t\r\n.>")):
            parser.error(f"argument --{option}: {value!r}: write it as subjects do, without spaces and dots")
    kind = o.kind or ("*" if o.save else "memory")
    bus, subject = Bus(o.server, o.ca, o.cert, o.key), f"gputap.v1.ev.*.{o.cluster}.{o.host}.{kind}"
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    batches = stored(bus, o.stream, o.name, subject, "_INBOX." + o.name) if o.stream else live(bus, subject)
    with open(o.save or os.devnull, "xb" if o.save else "wb") as file:
        for n, (subject, data) in enumerate(batches, 1):
            if o.save:
                file.write(struct.pack("<I", len(data)) + data)
            else:
                show(subject, data)
            if n == o.batches:
                return


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyboardInterrupt) as e:
        sys.exit(f"follow.py: {e}" if str(e) else 130)
