#!/usr/bin/env python3
"""Keeps a table of endpoints from the feed of examples/feed.c: the half of an API server that never loads the plugin.

    read_feed.py SOCKET

Reads the feed in one thread and answers on any other, without a lock: a reader takes the table as it stands, one whole version, and the
thread that reads the feed puts the next in its place. Commands on standard input, a line each:

    resolve SERVICE [PORT]   where clients go: host:number of what is ready or unconfirmed
    table                    the whole table as one line of JSON
    cut                      drops the connection; it comes back by itself and goes on from the last bookmark
    pause / go               stops reading the feed, as one that is too slow, and goes on
    stats                    how many full sets and changes were read
"""

import json
import socket
import sys
import threading
import time
from types import MappingProxyType


class Table:
    """One version: immutable, so that whoever holds it sees nothing half done."""

    def __init__(self, revision, rows):
        self.revision = revision
        self.rows = MappingProxyType(rows)  # by (id, port)

    def resolve(self, service, port=None):
        ready = ("ready", "unconfirmed")
        found = [
            row
            for row in self.rows.values()
            if row["service"] == service and row["state"] in ready and row["address"] and port in (None, row["port"])
        ]
        return sorted(spelled(row) for row in found)


def spelled(row):
    address = row["address"]
    return f"[{address}]:{row['number']}" if ":" in address else f"{address}:{row['number']}"


class Feed:
    """Follows the feed and keeps the newest whole table in `table`."""

    def __init__(self, path):
        self.path = path
        self.table = Table(0, {})
        self.epoch = None
        self.resets = 0
        self.changes = 0
        self.connection = None
        self.may_read = threading.Event()
        self.may_read.set()

    def run(self):
        """For ever; a lost connection costs nothing but the time until the next try."""
        while True:
            try:
                self.follow()
            except OSError:
                pass
            time.sleep(0.05)

    def follow(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path)
            self.connection = connection
            begin = f"since {self.epoch} {self.table.revision}\n" if self.epoch else "new\n"
            connection.sendall(begin.encode())
            # What comes is put on a copy, and shown at the next bookmark. A cut before it leaves the table as it was.
            rows = dict(self.table.rows)
            with connection.makefile("rb") as lines:
                for line in lines:
                    self.may_read.wait()
                    if not line.endswith(b"\n"):
                        return
                    rows = self.take(json.loads(line), rows)

    def take(self, told, rows):
        """Applies one line; the rows to go on with."""
        if "reset" in told:
            self.resets += 1
            return {}
        if "bookmark" in told:
            self.epoch = told["epoch"]
            self.table = Table(told["bookmark"], rows)  # the one step that others see
            return dict(rows)
        self.changes += 1
        if "upsert" in told:
            row = told["upsert"]
            rows[row["id"], row["port"]] = row
        elif "remove" in told:
            row = told["remove"]
            rows.pop((row["id"], row["port"]), None)
        return rows

    def cut(self):
        if self.connection:
            self.connection.shutdown(socket.SHUT_RDWR)


def answer(feed, words):
    table = feed.table  # taken once: everything below is of one version
    match words:
        case ["resolve", service, *port]:
            return " ".join(table.resolve(service, *port[:1])) or "-"
        case ["table"]:
            rows = [table.rows[key] for key in sorted(table.rows)]
            return json.dumps({"revision": table.revision, "endpoints": rows})
        case ["cut"]:
            feed.cut()
        case ["pause"]:
            feed.may_read.clear()
        case ["go"]:
            feed.may_read.set()
        case ["stats"]:
            return json.dumps({"resets": feed.resets, "changes": feed.changes})
        case _:
            return "what?"
    return "ok"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: read_feed.py SOCKET")
    feed = Feed(sys.argv[1])
    threading.Thread(target=feed.run, daemon=True).start()
    for line in sys.stdin:
        print(answer(feed, line.split()), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
