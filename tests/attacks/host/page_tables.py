"""Reads one byte in every two megabytes, so that the kernel keeps tables without end.

points: 10
start: solved
stops: It is left out.
"""

import mmap

flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
wide = mmap.mmap(-1, 2**43, flags=flags, prot=mmap.PROT_READ)
wide.madvise(mmap.MADV_NOHUGEPAGE)
for place in range(0, len(wide), 2**21):
    wide[place]
print("GOT 16 GB of tables")
