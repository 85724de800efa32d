"""Fills the memory of the machine with empty files in a folder that lies in memory.

points: 10
start: solved
stops: It is left out.
"""

import os

os.makedirs("/tmp/files")
for n in range(16_000_000):
    os.close(os.open(f"/tmp/files/{n}", os.O_CREAT))
print("GOT 16 GB of empty files")
