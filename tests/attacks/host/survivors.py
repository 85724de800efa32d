"""Leaves processes behind, in sessions of their own, deaf to signals, that hold every pipe open.

points: 0
says: left
"""

import os
import signal
import subprocess
import time

for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
subprocess.Popen(["/bin/sleep", "3600"], start_new_session=True, close_fds=False)
subprocess.Popen(["/bin/sh", "-c", "trap '' TERM HUP; sleep 3600 & sleep 3600"])
print("left")
