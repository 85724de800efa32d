"""Takes memory that counts for no process: shared maps of /dev/zero, and pages kept in pipes.

points: 10
start: solved
says: tried
"""

import ctypes
import mmap
import os

libc = ctypes.CDLL(None)
try:
    with open("/dev/zero", "r+b") as file:
        room = mmap.mmap(file.fileno(), 2**30, flags=mmap.MAP_SHARED)
        print("GOT a gigabyte", room[0])
except OSError:
    pass
ends, page = os.pipe(), ctypes.create_string_buffer(4096)
if libc.vmsplice(ends[1], (ctypes.c_void_p * 2)(ctypes.addressof(page), 4096), 1, 0) > 0:
    print("GOT a page into a pipe")
print("tried", open("/dev/zero", "rb").read(4))
