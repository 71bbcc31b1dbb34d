"""A service that listens late and leaves a child behind: its argument is the folder where it says who they are."""
import os
import signal
import socket
import subprocess
import sys
import time

folder = sys.argv[1]
# In the service's group, and deaf to the stop signal: only a kill of the group ends it.
left = subprocess.Popen(["sh", "-c", "trap '' TERM; exec sleep 300"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with open(f"{folder}/pids.new", "w") as pids:
    pids.write(f"{os.getpid()} {left.pid}")
os.rename(f"{folder}/pids.new", f"{folder}/pids")
time.sleep(0.3)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(os.environ["PORT"])))
listener.listen(16)
time.sleep(300)
