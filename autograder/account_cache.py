"""Small files in the account's cache, which no student's process sees."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from course.files.writing import write_whole

LARGEST = 2**16
"""The most characters of a file that are read."""


def path(name: str) -> Path:
    """Return where a file lies, or would."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "second-token", name)


def read(name: str) -> str:
    """Return a file's text; "" if there is none, or if somebody else could have written it."""
    try:
        fd = os.open(path(name), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return ""
    with open(fd, encoding="utf-8", errors="replace") as file:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            return ""
        return file.read(LARGEST)


def write(name: str, text: str) -> None:
    """Replace a file, whole.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(path(name), text.encode())
