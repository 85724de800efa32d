"""Forks as often as it can, and its children do the same.

points: 10
start: solved
says: refused
"""

import os
import time

assert os.getuid() != 0, "not confined"
me, refused = os.getpid(), False
for _ in range(10):
    try:
        if os.fork() == 0:
            continue
    except OSError:
        refused = True
    if os.getpid() != me and refused:
        time.sleep(30)
        os._exit(0)
if os.getpid() != me:
    time.sleep(30)
    os._exit(0)
for _ in range(100):
    try:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    except OSError as error:
        print("refused", error)
        break
else:
    print("GOT 100 children")
