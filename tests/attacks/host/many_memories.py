"""Ten processes that each take no more than they may.

points: 10
start: solved
stops: in all processes together
"""

import os
import time

for n in range(10):
    if os.fork() == 0:
        held = b"x" * 5 * 10**8  # beside what PyTorch holds: of a build for CUDA, 0.75 GB
        time.sleep(60)
        os._exit(0)
time.sleep(12)
print("GOT 5 GB in ten processes")
