"""A job that does on a real host what the [[run]] tables of a scenario say: player.py SCENARIO SERVICE PORT..."""

import os
import queue
import signal
import socket
import sys
import threading
import time
import tomllib


def begin():
    """When this process began, which is before anything of it ran."""
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


BEGIN = begin()
# Ends that are due: only the main thread can end by a signal.
ENDS = queue.SimpleQueue()


def seconds(text):
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    number = text.rstrip("ms")
    return float(number) * units[text[len(number):]]


def script(scenario, service):
    """What this run does: the tables of the service in turn, the last one for all that follow."""
    runs = [one for one in scenario.get("run", []) if one.get("service", service) == service]
    number = int(os.environ["PORTREEVE_RUN"])
    for one in runs:
        number -= one.get("times", 1)
        if number <= 0:
            return one
    return runs[-1] if runs else {}


with open(sys.argv[1], "rb") as file:
    RUN = script(tomllib.load(file), sys.argv[2])


def end(how):
    """As `{ code = 1 }` or `{ signal = "KILL" }` says."""
    if "signal" in how:
        number = getattr(signal, "SIG" + how["signal"])
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(1000)
    os._exit(how.get("code", 0))


def end_at(at, how):
    timer = threading.Timer(max(0.0, at - time.monotonic()), ENDS.put, [how])
    timer.daemon = True
    timer.start()


def on_term(_number, _frame):
    if RUN.get("ignores_term"):
        return
    how = RUN.get("on_term", {"signal": "TERM"})
    end_at(time.monotonic() + seconds(how.get("takes", "0s")), how)


def answer(connection):
    """GET /startup, /liveness and /readiness are answered as the tables say, by the age of the run."""
    with connection:
        words = connection.recv(4096).split()
        if not words:
            return  # somebody looked whether the port is open
        age, kind = time.monotonic() - BEGIN, words[1].decode().strip("/")
        if "hangs" in RUN and age >= seconds(RUN["hangs"]):
            time.sleep(1000)
        said = {"answer": "ok"}
        for one in RUN.get("probe", []):
            begins, ends = seconds(one.get("from", "0s")), seconds(one.get("to", "1000m"))
            if one.get("kind", kind) == kind and begins <= age < ends:
                said = one
        time.sleep(1000 if said["answer"] == "none" else seconds(said.get("takes", "0s")))
        status = b"200 OK" if said["answer"] == "ok" else b"503 Unavailable"
        connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")


def serve(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


signal.signal(signal.SIGTERM, on_term)
if "exit" in RUN:
    end_at(BEGIN + seconds(RUN["exit"].get("after", "0s")), RUN["exit"])
for port in sys.argv[3:]:
    threading.Thread(target=serve, args=(int(port),), daemon=True).start()
end(ENDS.get())
