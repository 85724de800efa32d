"""Ten processes that each take no more than they may.

points: 10
start: solved
stops: in all processes together
"""

import os
import time

for n in range(10):
    if os.fork() == 0:
        held = b"x" * 10**9
        time.sleep(60)
        os._exit(0)
time.sleep(12)
print("GOT 10 GB in ten processes")
