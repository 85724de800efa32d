"""Lay out a copy of the files that were handed in, for a student's process to see.

The copy's path names nobody, and it holds regular files alone: links are not followed, pipes are not
waited for, devices are not opened. nbgrader's note of the time is no part of it. Of a folder with more
than the bounds allow, the rest is left out.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

MAX_ENTRIES = 2_000
"""Files, folders and whatever else stands in one submission."""
MAX_DEPTH = 8
"""Folders within one another, the submission's own included."""
MAX_BYTES = 256 * 2**20
"""Of all files together. One that is too large is left out, and those after it that fit are not."""
STAMP = "timestamp.txt"
"""What nbgrader calls the file that says when it was handed in: no part of the work."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_PIECE = 2**20


@dataclass
class _Left:
    """What may still be copied."""

    entries: int
    size: int


def lay_out(submission: Path, place: Path) -> Path:
    """Copy a submission's folder to `place`, which must not exist, readable for everyone.

    Raises:
        OSError: there is no such folder, or the copy cannot be written.
    """
    _copy_folder(
        os.open(submission, os.O_RDONLY | os.O_DIRECTORY), place, _Left(MAX_ENTRIES, MAX_BYTES), 1
    )
    return place


def _copy_folder(source: int, place: Path, left: _Left, depth: int) -> None:
    """Copy what stands in the open folder `source`, which is closed then: first its files."""
    place.mkdir()
    place.chmod(0o755)  # whatever the umask is
    try:
        with os.scandir(source) as scan:
            first = islice(scan, left.entries // 2)  # the next folder shall have its part as well
            entries = sorted(first, key=lambda entry: entry.name)
        left.entries -= len(entries)
        for entry in entries:
            stamp = depth == 1 and entry.name == STAMP
            if entry.is_file(follow_symlinks=False) and not stamp:
                _copy_file(source, entry.name, place / entry.name, left)
        for entry in entries:
            if depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                inner = _open(entry.name, _READ | os.O_DIRECTORY, source)
                if inner is not None:
                    _copy_folder(inner, place / entry.name, left, depth + 1)
    finally:
        os.close(source)


def _copy_file(folder: int, name: str, place: Path, left: _Left) -> None:
    descriptor = _open(name, _READ, folder)
    if descriptor is None:
        return
    with open(descriptor, "rb", buffering=0) as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > left.size:
            return
        with open(place, "xb", buffering=0) as copy:
            while (part := file.read(min(_PIECE, left.size))) and left.size:
                left.size -= copy.write(part)
    place.chmod(0o755 if state.st_mode & 0o100 else 0o644)


def _open(name: str, flags: int, folder: int) -> int | None:
    """Open what stands in a folder; None when it may not be read, or is no longer what it was."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
