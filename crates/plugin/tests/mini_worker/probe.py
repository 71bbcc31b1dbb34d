#!/usr/bin/env python3
"""`portreeve probe tcp --port N --pid P --timeout Tms`, as far as a connect goes: 0 it listens, 1 it does not."""
import socket
import sys

said = dict(zip(sys.argv[3::2], sys.argv[4::2]))
try:
    socket.create_connection(("127.0.0.1", int(said["--port"])), int(said["--timeout"].removesuffix("ms")) / 1000)
except OSError:
    sys.exit(1)
