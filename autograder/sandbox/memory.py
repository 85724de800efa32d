"""Watch the memory of a sandbox as a whole, and end the sandbox when it takes more than it may.

The kernel's limits apply to single processes; a cgroup would limit all together, but not every system
provides one. Here a thread outside the sandbox, where nothing inside can stop it, adds up the memory of
its processes every INTERVAL: private and shared pages, page tables, and files in memory. Memory that is
taken within one interval comes on top of the limit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator

from autograder.sandbox.processor_time import account_of

INTERVAL = 0.05
"""Seconds between two measurements."""
FOLDERS = ("tmp", "dev/shm")
"""The folders in the sandbox whose files are in memory."""
INODE = 1024
"""Bytes that the kernel holds for each file in memory, also for an empty one."""
KIB, MB = 1024, 10**6


class Confined(subprocess.Popen):
    """The handle of a sandbox: bubblewrap's process outside of it.

    Attributes:
        first: process id of the first process inside, with which everything inside ends; None
            when it was not made.
        ended_for: why the sandbox was ended from outside, in words; "" while it was not.
    """

    first: int | None = None
    ended_for = ""

    def account(self) -> tuple[float, bool]:
        """Say what its processes have used of the machine's time, see `processor_time.Account`."""
        with contextlib.suppress(OSError):  # it is being made, or has ended
            return account_of(_own_proc(self.first))()
        return 0.0, True

    def watch(self, limit: int) -> None:
        """Have a thread end the sandbox once it holds more than `limit` bytes of memory."""
        threading.Thread(target=_watch, args=(self, limit), daemon=True).start()


def _watch(sandbox: Confined, limit: int) -> None:
    with contextlib.ExitStack() as opened, contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(sandbox.first)
        opened.callback(os.close, process)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        places: list[int] = []
        while not ended.poll(1000 * INTERVAL):
            with contextlib.suppress(OSError):  # it is being made, or ends
                if not places:
                    places = _open_places(sandbox.first)
                    for place in places:
                        opened.callback(os.close, place)
                held = memory_held(*places, limit=limit)
                if held > limit:
                    sandbox.ended_for = (
                        f"its memory, {held / MB:,.0f} MB in all processes together, was more than "
                        f"the {limit / MB:,.0f} MB allowed"
                    )
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    return


def _own_proc(first: int | None) -> str:
    """Return the path of a sandbox's own /proc.

    Raises:
        OSError: it is not there yet, or no longer.
    """
    place = f"/proc/{first}/root/proc"
    if os.stat(place).st_dev == os.stat("/proc").st_dev:
        raise FileNotFoundError("the sandbox still sees the /proc of this machine")
    return place


def _open_places(first: int) -> list[int]:
    """Open a sandbox's /proc and its folders in memory.

    Raises:
        OSError: they are not there yet.
    """
    with contextlib.ExitStack() as opened:
        places = []
        folders = [f"/proc/{first}/root/{name}" for name in FOLDERS]
        for name in (_own_proc(first), *folders):
            places.append(os.open(name, os.O_RDONLY | os.O_DIRECTORY))
            opened.callback(os.close, places[-1])
        opened.pop_all()
    return places


def memory_held(processes: int, *folders: int, limit: int) -> int:
    """Add up the bytes of memory that a sandbox holds.

    What can be read quickly counts a page once for each process that has it. Only where that sum is
    above `limit` is each page shared out among those that have it, which takes longer.

    Args:
        processes: a descriptor of the sandbox's /proc.
        folders: descriptors of its folders in memory.
    """
    names = [name for name in os.listdir(processes) if name.isdigit()]
    files = sum(map(_files_in, folders))
    quick = files + sum(_counted(processes, name) for name in names)
    if quick <= limit:
        return quick
    return files + sum(_shared_out(processes, name) for name in names)


def _files_in(folder: int) -> int:
    """Return the bytes of memory that the files of a folder in memory take."""
    state = os.fstatvfs(folder)
    blocks, inodes = state.f_blocks - state.f_bfree, state.f_files - state.f_ffree
    return blocks * state.f_frsize + inodes * INODE


def _counted(processes: int, name: str) -> int:
    """Return the bytes that one process holds, shared pages in full; 0 when it has ended."""
    fields = dict(_fields(processes, f"{name}/status"))
    keys = ("RssAnon", "RssShmem", "VmPTE", "VmSwap")
    return sum(fields.get(key, 0) for key in keys)


def _shared_out(processes: int, name: str) -> int:
    """Return the bytes that one process holds, of shared pages its part."""
    fields = dict(_fields(processes, f"{name}/smaps_rollup"))
    if not fields:  # it has ended, or lets nobody look
        return _counted(processes, name)
    tables = dict(_fields(processes, f"{name}/status")).get("VmPTE", 0)
    return tables + sum(fields.get(key, 0) for key in ("Pss_Anon", "Pss_Shmem", "SwapPss"))


def _fields(processes: int, file: str) -> Iterator[tuple[str, int]]:
    """Read the lines of a file of /proc that give kilobytes: names, and bytes."""
    try:
        descriptor = os.open(file, os.O_RDONLY, dir_fd=processes)
        with open(descriptor, "rb", buffering=0) as opened:
            lines = opened.read().splitlines()
    except OSError:
        return
    for line in lines:
        name, _, value = line.partition(b":")
        if value.endswith(b" kB"):
            yield name.decode("ascii", "replace"), int(value[:-3]) * KIB
