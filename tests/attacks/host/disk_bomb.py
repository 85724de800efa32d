"""Fills the disk: in big files, in small files, in folders, in memory that looks like a disk.

points: 10
start: solved
says: full
"""

import os

full = 0
for place in ("/tmp", "/dev/shm", ".", "/submission", "/view", "/var/tmp"):
    try:
        for n in range(64):
            with open(f"{place}/bomb-{n}", "wb") as file:
                file.write(bytes(16 * 2**20))
    except OSError as error:
        print("full", place, error)
        full += 1
print("GOT" if full < 6 else "full")
for n in range(16):
    try:
        os.unlink(f"/tmp/bomb-{n}")
    except OSError:
        pass
