"""Let one process at a time write the gradebook."""

from __future__ import annotations

from logging import Logger
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, where grading is for one's own account alone
    fcntl = None


def become_the_writer(lock: Path, log: Logger) -> IO[str]:
    """Wait until no other process writes, and lock the gradebook; return the lock's file. The lock is
    released when the file is closed or the process ends, however that happens.

    Args:
        lock: the path of the lock's file; it is created if it is missing.
        log: gets a message if the wait takes long.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = lock.open("a")
    if fcntl:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.error("Another process writes the gradebook; this one waits for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
    return file
